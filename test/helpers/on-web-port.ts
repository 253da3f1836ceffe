const FIRST = 8_100
const LAST = 8_399
const MAX_TRIES = 50

/** Starts a server on a free port that the agent takes for one of a web page. */
export async function onWebPort<T>(start: (port: number) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST + 1))
    try {
      return await start(port)
    } catch (error) {
      if (tries === MAX_TRIES) throw error
    }
  }
}
