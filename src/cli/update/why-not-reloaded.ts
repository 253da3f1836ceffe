import type { OwnUpdate } from '../../api/update/update-view.ts'

const UNDER_WAY: ReadonlySet<string> = new Set(['prepared', 'copying', 'trying'])

/** A trial is one start of the service, which the update makes: a reload would be none, or a second one. */
export function whyNotReloaded(update: OwnUpdate | undefined): string | undefined {
  const report = update?.report()
  if (!report || !UNDER_WAY.has(report.state)) return undefined
  return `${report.sentence} The update restarts the agent. Reload it after the update.`
}
