import { execFileSync } from 'node:child_process'
import type { Advice } from '../../agent/verdict.ts'

const UNIT = 'device-agent'
const ANSWER_MS = 5_000

/** Returns why the installed service does not run, as systemd says, and the fix. Undefined: unknown, or it runs. */
export function stoppedService(): Advice | undefined {
  const shown = shownByName()
  const is = (state: string, remedy: string): Advice => ({
    problem: `No agent is running: the service ${UNIT} ${state}.`,
    remedy,
  })
  const start = `systemctl enable --now ${UNIT}`
  if (shown.LoadState === 'masked') {
    return is('is masked', `Run systemctl unmask ${UNIT}, then ${start}.`)
  }
  if (shown.LoadState !== 'loaded') return undefined
  const log = `Read the reason with journalctl -u ${UNIT} -n 20, and fix it.`
  const restart = `Then run systemctl restart ${UNIT}.`
  if (shown.ActiveState === 'failed') {
    return is(`has failed (${shown.Result ?? 'no result'})`, `${log} ${restart}`)
  }
  if (shown.SubState === 'auto-restart') {
    return is('stops again and again', `${log} ${restart}`)
  }
  if (shown.ActiveState !== 'inactive') return undefined
  if (shown.UnitFileState === 'disabled') {
    return is('is disabled, so it does not start with the device', `Run ${start}.`)
  }
  return is('is stopped', `Run systemctl start ${UNIT}.`)
}

export const adviceText = ({ problem, remedy }: Advice) => `${problem} ${remedy}`

function shownByName(): Readonly<Record<string, string | undefined>> {
  const names = 'LoadState,ActiveState,SubState,UnitFileState,Result'
  try {
    const output = execFileSync('systemctl', ['show', UNIT, '--no-pager', `--property=${names}`], {
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
