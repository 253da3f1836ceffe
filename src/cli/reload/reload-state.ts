/**
 * Of a process that may be replaced.
 *
 * | state       | who is the service | what it waits for                                              |
 * |-------------|--------------------|----------------------------------------------------------------|
 * | `serving`   | this process       | a reload                                                       |
 * | `reloading` | this process       | the new one, which may have folder and names by now            |
 * | `stuck`     | this process       | its own letting go, which hangs: then it takes everything back |
 * | `left`      | the new process    | what is under way here                                         |
 * | `bereft`    | nobody             | the same: the new one died, and another is started after this  |
 * | `stopped`   | this process       | its end                                                        |
 *
 * Nothing leads back from `left`: from then on the new process writes, this one listens nowhere, its
 * link ends and our gateway holds the names. So a process that is bereft ends, and says so.
 */
export type ReloadState = 'serving' | 'reloading' | 'stuck' | 'left' | 'bereft' | 'stopped'

/** `hung`: letting go took too long; `free`: it is over. `served`: the new one serves; `died`: it did. */
export type ReloadEvent = 'request' | 'failed' | 'hung' | 'free' | 'served' | 'died' | 'stop'

const NEXT: Record<ReloadState, Partial<Record<ReloadEvent, ReloadState>>> = {
  serving: { request: 'reloading', stop: 'stopped' },
  reloading: { failed: 'serving', hung: 'stuck', served: 'left', stop: 'stopped' },
  stuck: { free: 'serving', stop: 'stopped' },
  left: { died: 'bereft' },
  bereft: {},
  stopped: {},
}

/** The state after an event; an event that means nothing in a state changes nothing. */
export function nextReloadState(state: ReloadState, event: ReloadEvent): ReloadState {
  return NEXT[state][event] ?? state
}
