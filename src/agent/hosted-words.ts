import type { ShownProblem } from './problem.ts'

/** Texts name the remote side `the gateway`. Returns a text for the hosted service. */
export function hostedWords(text: string): string {
  return text
    .replace(JOIN, 'Copy an authtoken from the dashboard of the hosted service.')
    .replace(/\b([Tt])he gateway\b/g, '$1he hosted service')
}

/** A step at a gateway of one's own. */
const JOIN = 'Run device-agent gateway invite on the gateway and device-agent join on this device.'

/** The same for a problem as shown. */
export function hostedProblem<T extends ShownProblem>(problem: T): T {
  const { remedy, lastError } = problem
  return {
    ...problem,
    ...(remedy !== undefined && { remedy: hostedWords(remedy) }),
    ...(lastError !== undefined && { lastError: hostedWords(lastError) }),
  }
}
