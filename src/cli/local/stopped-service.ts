import { execFileSync } from 'node:child_process'
import type { Advice } from '../../agent/verdict.ts'
import { StartError } from '../../base/app-error.ts'
import type { CommandContext } from '../command-context.ts'
import { gatewaySurroundings } from '../surroundings.ts'

const ROLES = { 'device-agent': 'agent', 'device-gateway': 'gateway' } as const
const ANSWER_MS = 5_000
const NO_AGENT = 'This machine runs a gateway and no agent.'
const RUNNING: ReadonlySet<string | undefined> = new Set(['active', 'reloading'])
/** Restarts by systemd since the last start by a person. */
const MANY = 2

/** Units of a service for `systemctl start`, the socket unit first. */
export const startedUnits = (name: keyof typeof ROLES) =>
  name === 'device-gateway' ? `${name}.socket ${name}` : name

/** Returns why an installed service does not run, as systemd says, and the fix. Undefined: unknown, or it runs. */
export function stoppedService(unit: keyof typeof ROLES = 'device-agent'): Advice | undefined {
  const shown = shownByName(unit)
  const is = (state: string, remedy: string): Advice => ({
    problem: `No ${ROLES[unit]} is running: the service ${unit} ${state}.`,
    remedy,
  })
  const units = startedUnits(unit)
  const start = `systemctl enable --now ${units}`
  if (shown.LoadState === 'masked') {
    return is('is masked', `Run systemctl unmask ${units}, then ${start}.`)
  }
  if (shown.LoadState !== 'loaded') return undefined
  const log = `Read the reason with journalctl -u ${unit} -n 20, and fix it.`
  const restart = `Then run systemctl restart ${unit}.`
  if (shown.ActiveState === 'failed') {
    return is(`has failed (${shown.Result ?? 'no result'})`, `${log} ${restart}`)
  }
  // Between two attempts, and during the next one.
  const isStarting = shown.ActiveState === 'activating'
  if (shown.SubState === 'auto-restart' || (isStarting && Number(shown.NRestarts) >= MANY)) {
    return is('stops again and again', `${log} ${restart}`)
  }
  if (isStarting) return is('is starting', 'Try again in a few seconds.')
  if (shown.ActiveState !== 'inactive') return undefined
  if (shown.UnitFileState === 'disabled') {
    return is('is disabled, so it does not start with the device', `Run ${start}.`)
  }
  return is('is stopped', `Run systemctl start ${units}.`)
}

/** Whether systemd knows the service of the agent. */
export const hasAgentService = () => shownByName('device-agent').LoadState === 'loaded'

const IN_FOLDER = 'device-agent run or device-agent up, in its folder'

/** Command that starts the agent: as a service, or in the folder of its settings. */
export const startCommand = (isService: boolean) =>
  isService ? 'systemctl start device-agent' : IN_FOLDER

/** The same for an agent that runs. */
export const restartCommand = (isService: boolean) =>
  isService ? 'systemctl restart device-agent' : `stop it, then ${IN_FOLDER}`

export const adviceText = ({ problem, remedy }: Advice) => `${problem} ${remedy}`

/** Why the installed gateway does not run, and the fix. Undefined: it runs, or the settings are for another gateway. */
export function stoppedGateway({
  environment,
  root,
}: Pick<CommandContext, 'environment' | 'root'>): string | undefined {
  const { source } = gatewaySurroundings(environment, undefined, root)
  const stopped = source === 'environment' ? undefined : stoppedService('device-gateway')
  return stopped && adviceText(stopped)
}

/** Thrown where the installed gateway is in use, and the installed agent is not. */
export class LoneGatewayError extends StartError {
  /** Whether the gateway runs. Otherwise `advice` says why not. */
  readonly isActive: boolean
  readonly advice: Advice

  constructor(stopped: Advice | undefined) {
    const advice = {
      problem: stopped ? `${NO_AGENT} ${stopped.problem}` : NO_AGENT,
      remedy: stopped?.remedy ?? 'To see the gateway, run device-agent service status --gateway.',
    }
    super(adviceText(advice))
    this.isActive = stopped === undefined
    this.advice = advice
  }
}

/** Undefined if the agent is in use too, or if there is no gateway. */
export function loneGateway(): LoneGatewayError | undefined {
  const agent = shownByName('device-agent')
  const isUnused = agent.ActiveState === 'inactive' && agent.UnitFileState !== 'enabled'
  if (!isUnused) return undefined
  const { LoadState, ActiveState, UnitFileState } = shownByName('device-gateway')
  if (LoadState !== 'loaded') return undefined
  if (RUNNING.has(ActiveState)) return new LoneGatewayError(undefined)
  // Each package brings the unit of a gateway, also to a device.
  const isUsed =
    ActiveState !== 'inactive' ||
    UnitFileState === 'enabled' ||
    shownByName('device-gateway.socket').UnitFileState === 'enabled'
  return isUsed ? new LoneGatewayError(stoppedService('device-gateway')) : undefined
}

function shownByName(unit: string): Readonly<Record<string, string | undefined>> {
  const names = 'LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts'
  try {
    const output = execFileSync('systemctl', ['show', unit, '--no-pager', `--property=${names}`], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
      timeout: ANSWER_MS,
    })
    return Object.fromEntries(output.split('\n').map((line) => line.split('=', 2)))
  } catch {
    // Without systemd, another supervisor starts the agent.
    return {}
  }
}
