import * as z from 'zod'

/** Set: the gateway logs each bind, and the stages of a recovery are printed. That takes some of its time. */
export const SHOWS_STAGES = Boolean(process.env.LINKS_STAGES)

const Line = z.object({ time: z.union([z.number(), z.string()]), msg: z.string() })

/** When connections of the agent were let in, names were bound, and all of them, by the gateway's log. */
export function stagesIn(log: string, since: number): string {
  const at = (msg: string) => timesOf(log, msg).map((time) => seconds(time - since))
  const connections = at('agent online')
  const binds = at('endpoint online')
  const [complete = 'never'] = at('all names of the agent are bound').slice(-1)
  const [first = 'never', last = first] = [binds[0], binds.at(-1)]
  return `connections let in ${connections.join(' ')}; ${binds.length} binds, first ${first}, last ${last}; complete ${complete}`
}

function timesOf(log: string, msg: string): number[] {
  return log.split('\n').flatMap((text) => {
    const line = Line.safeParse(parsed(text)).data
    return line?.msg === msg ? [new Date(line.time).getTime()] : []
  })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`
