import { setMaxListeners } from 'node:events'

/**
 * Calls the listener once when the signal is aborted. Returns a function that removes the listener. Any
 * number of tasks may wait for one signal, such as the stop of the process. Node 20 takes more than ten
 * listeners for a leak and prints a warning. Newer versions have no limit for signals.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  setMaxListeners(0, signal)
  signal.addEventListener('abort', listener, { once: true })
  return () => signal.removeEventListener('abort', listener)
}
