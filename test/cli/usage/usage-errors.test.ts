import { PassThrough } from 'node:stream'
import { CommanderError } from 'commander'
import { expect, it } from 'vitest'
import { createProgram } from '../../../src/cli/program.ts'

/** Runs a command with wrong usage. Returns what it prints. */
async function usageError(line: string): Promise<string> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const { signal: stop } = new AbortController()
  const program = createProgram({ environment: {}, stdout, stderr, stop })
  await expect(program.parseAsync(line.split(' '), { from: 'user' })).rejects.toThrow(
    CommanderError,
  )
  return String(stderr.read())
}

it.each([
  ['tunnels add 99999', 'A port is a number from 1 to 65535, not 99999.'],
  ['tunnels add web localhost:0', 'A port is a number from 1 to 65535, not 0.'],
  ['tunnels add http://localhost:8001', 'Write the service without http://: localhost:8001'],
  ['tunnels set web http://nas:80/', 'Write the service without http://: nas:80'],
  ['tunnels add web.site.test', 'Add the port: tunnels add web.site.test PORT'],
  [
    'tunnels set web --max-connections x',
    "'--max-connections <count>' argument 'x' is invalid. It",
  ],
  ['tunnels set web', 'Nothing to change.'],
  ['tunnels set-policy web', 'Give either a file or --default.'],
  ['gateway drian', "unknown command 'drian'\n(Did you mean drain?)"],
  ['policy explain p.yaml --request get', 'Use a method in upper case and a URL with http:// or'],
  ['gateway revoke cam01 cam02', 'too many arguments'],
])('says what is wrong: %s', async (line, text) => {
  expect(await usageError(line)).toContain(text)
})

it.each([
  ['policy check', 'policy check'],
  ['gateway invite x', 'gateway invite'],
  ['gateway drian', 'gateway'],
  ['run --nope', 'run'],
])('names the help of the command: %s', async (line, command) => {
  expect(await usageError(line)).toContain(`(run device-agent help ${command})`)
})
