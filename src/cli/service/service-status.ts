import { startedUnits } from '../local/stopped-service.ts'
import type { ServiceName } from './env-template.ts'

/** Properties that systemctl is asked for. */
export const STATUS_PROPERTIES = [
  'LoadState',
  'ActiveState',
  'SubState',
  'StatusText',
  'NRestarts',
] as const

/** Output of `service status --json`. */
export interface ServiceStatus {
  readonly service: ServiceName
  readonly installed: boolean
  readonly active: boolean
  /** As systemctl says it: `active (running)`. */
  readonly state: string
  readonly restarts: number
  /** The service's own sentence; empty while it does not run. */
  readonly status: string
}

/** Parses the output of `systemctl show`. */
export function readServiceStatus(service: ServiceName, output: string): ServiceStatus {
  const shown = new Map(
    output.split('\n').map((line) => {
      const [name = '', ...value] = line.split('=')
      return [name, value.join('=')]
    }),
  )
  const active = shown.get('ActiveState') === 'active'
  return {
    service,
    installed: shown.get('LoadState') === 'loaded',
    active,
    state: `${shown.get('ActiveState')} (${shown.get('SubState')})`,
    restarts: Number(shown.get('NRestarts') ?? 0),
    // systemd keeps the last sentence of a process that has ended.
    status: active ? (shown.get('StatusText') ?? '') : '',
  }
}

/** One line for people. For a service that does not run, it has the command that starts it, and where to read why. */
export function describeServiceStatus(it: ServiceStatus): string {
  const { service, installed, active, state, restarts, status } = it
  if (!installed) {
    const option = service === 'device-gateway' ? ' --gateway' : ''
    return `${service} is not installed. Run device-agent service install${option}.`
  }
  const times = `${restarts} ${restarts === 1 ? 'time' : 'times'}`
  const start = `Start it: systemctl start ${startedUnits(service)}. `
  const isStopped = state.startsWith('inactive')
  const more = active
    ? status
    : `${isStopped ? start : ''}See the log: journalctl --unit ${service}`
  return `${service} is ${state}, restarted ${times}. ${more}`.trim()
}
