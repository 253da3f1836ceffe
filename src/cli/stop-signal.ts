/** A signal that is aborted by the first SIGTERM or SIGINT. A second one ends the process at once. */
export function onStopSignals(process: NodeJS.Process): AbortSignal {
  const controller = new AbortController()
  const onSignal = (name: NodeJS.Signals) => {
    if (controller.signal.aborted) process.exit(name === 'SIGINT' ? 130 : 143)
    controller.abort(name)
  }
  process.on('SIGTERM', onSignal)
  process.on('SIGINT', onSignal)
  return controller.signal
}
