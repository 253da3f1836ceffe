const { setFlagsFromString } = require('node:v8')
const { runInNewContext } = require('node:vm')

/** Loaded into the gateway before the program: on SIGUSR2 it collects garbage and says what is left. */
process.on('SIGUSR2', async () => {
  // Not on the command line: Node would compile its own modules again.
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  // What the first round frees holds more that the next ones find.
  for (let round = 0; round < 4; round += 1) {
    collect()
    await new Promise(setImmediate)
  }
  const { heapUsed, external, arrayBuffers, rss } = process.memoryUsage()
  process.stderr.write(`${JSON.stringify({ heapUsed, external, arrayBuffers, rss })}\n`)
})
