import { readFileSync } from 'node:fs'
import { CLOCK_REMEDY } from '../../agent/probes/connection-problem.ts'
import {
  Preflight,
  PREFLIGHT_STEPS as STEPS,
  type PreflightStep as Step,
} from '../../agent/probes/preflight.ts'
import {
  CLOCK_TOLERANCE_MS,
  HOSTED_SERVICE,
  readServiceDate,
  timeSources,
} from '../../agent/probes/service-time.ts'
import { type Problem, problemOf } from '../../agent/problem.ts'
import { DEFAULT_TIMINGS } from '../../agent/timings.ts'
import type { StatusView } from '../../api/status-view.ts'
import { formatDuration, formatUtc, systemClock } from '../../base/clock.ts'
import type { Config } from '../../config.ts'
import { bad, type Finding, good, skipped } from './finding.ts'

/** The way to each address of the service, and whether the clocks agree. */
export async function serviceChecks(
  config: Config['agent'],
  skew: ClockSkew,
  stop: AbortSignal,
): Promise<Finding[]> {
  const [clock, ways] = await Promise.all([skew.then(clockFinding), allWays(config, skew, stop)])
  // A wrong clock also rejects valid certificates, so it comes first.
  return clock.outcome === 'bad' ? [clock, ...ways] : [...ways, clock]
}

/** Clock of the device minus clock of the service in milliseconds. Undefined: not known. */
type ClockSkew = Promise<number | undefined>

async function allWays(
  config: Config['agent'],
  skew: ClockSkew,
  stop: AbortSignal,
): Promise<Finding[]> {
  const addresses = config.serverAddrs.length > 0 ? config.serverAddrs : [undefined]
  const findings: Finding[] = []
  for (const address of addresses) findings.push(...(await way(config, address, skew, stop)))
  return findings
}

async function way(
  config: Config['agent'],
  serverAddr: string | undefined,
  skew: ClockSkew,
  stop: AbortSignal,
): Promise<Finding[]> {
  const shown = serverAddr ?? HOSTED_SERVICE
  const name = (step: Step) => `${step} ${shown}`
  let chain = ''
  let reached: Step = 'dns'
  const preflight = new Preflight({
    serverAddr,
    caCert: readCaCert(config.caCertPath),
    caCertPath: config.caCertPath,
    serviceDate: async () => {
      const skewMs = await skew
      return skewMs === undefined ? undefined : systemClock.now() - skewMs
    },
    onChain: (shown) => {
      chain = shown
    },
    onStep: (step) => {
      reached = step
    },
    timings: DEFAULT_TIMINGS.preflight,
    clock: systemClock,
  })
  const startedAt = systemClock.monotonic()
  let problem: Problem | undefined
  try {
    await preflight.run(stop)
  } catch (error) {
    problem = problemOf(error)
  }
  const ms = Math.round(systemClock.monotonic() - startedAt)
  let hasFailed = false
  return STEPS.map((step) => {
    if (hasFailed) return skipped(name(step), 'skipped, an earlier step failed')
    if (step !== reached || !problem)
      return good(
        name(step),
        step === 'tls' ? `${trusted(chain, config)}, ${ms} ms in total` : 'fine',
      )
    hasFailed = true
    const detail = chain === '' ? problem.detail : `${problem.detail}; certificate chain: ${chain}`
    return bad(name(step), detail, problem.remedy)
  })
}

/** A CA that is not sent is no flaw of a trusted chain. */
function trusted(chain: string, { caCertPath }: Config['agent']): string {
  const from = caCertPath === undefined ? 'the trusted CAs of this device' : 'SVC_CA_CERT'
  return chain.replace(/\(not sent\)$/, `(known from ${from})`)
}

function clockFinding(skewMs: number | undefined): Finding {
  const check = 'clock'
  if (skewMs === undefined) return skipped(check, 'the gateway does not report its time')
  if (Math.abs(skewMs) <= CLOCK_TOLERANCE_MS) return good(check, 'matches the clock of the gateway')
  const amount = formatDuration(Math.abs(skewMs))
  const flaw = `${amount} ${skewMs > 0 ? 'ahead of' : 'behind'} the gateway`
  const theirs = formatUtc(systemClock.now() - skewMs)
  return bad(check, `${flaw}, whose clock says ${theirs}`, CLOCK_REMEDY)
}

/**
 * Asks the sources that the agent asks. `status`: of the running agent, which knows the port of its own domain.
 */
export async function clockSkew(
  { domain, ingress, serverAddrs }: Config['agent'],
  status: StatusView | undefined,
  stop: AbortSignal,
): ClockSkew {
  const url = status?.own_endpoint?.url ?? (domain && `https://${domain}/`)
  const theirs = await readServiceDate(timeSources(url, ingress, serverAddrs[0]), stop)
  return theirs === undefined ? undefined : systemClock.now() - theirs
}

function readCaCert(path: string | undefined): string | undefined {
  try {
    return path === undefined ? undefined : readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
