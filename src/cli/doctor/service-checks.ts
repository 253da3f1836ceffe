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
} from '../../agent/probes/service-time.ts'
import { type Problem, problemOf } from '../../agent/problem.ts'
import { DEFAULT_TIMINGS } from '../../agent/timings.ts'
import { systemClock } from '../../base/clock.ts'
import { formatListenAddress } from '../../base/listen-address.ts'
import type { Config } from '../../config.ts'
import { bad, type Finding, good, skipped } from './finding.ts'

/** The way to each address of the service, and whether the clocks agree. */
export async function serviceChecks(
  config: Config['agent'],
  stop: AbortSignal,
): Promise<Finding[]> {
  const addresses = config.serverAddrs.length > 0 ? config.serverAddrs : [undefined]
  const findings: Finding[] = []
  for (const address of addresses) findings.push(...(await way(config, address, stop)))
  return [...findings, await clockCheck(config, stop)]
}

async function way(
  config: Config['agent'],
  serverAddr: string | undefined,
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
    serviceDate: () => serviceDate(config, stop),
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
      return good(name(step), step === 'tls' ? `${chain}, ${ms} ms in total` : 'fine')
    hasFailed = true
    const detail = chain === '' ? problem.detail : `${problem.detail}; certificate chain: ${chain}`
    return bad(name(step), detail, problem.remedy)
  })
}

async function clockCheck(config: Config['agent'], stop: AbortSignal): Promise<Finding> {
  const check = 'clock'
  const theirs = await serviceDate(config, stop)
  if (theirs === undefined) return skipped(check, 'the gateway does not report its time')
  const skewMs = Math.round((systemClock.now() - theirs) / 1_000) * 1_000
  if (Math.abs(skewMs) <= CLOCK_TOLERANCE_MS) return good(check, 'matches the clock of the gateway')
  const flaw = `${Math.abs(skewMs) / 1_000} s ${skewMs > 0 ? 'ahead of' : 'behind'} the gateway`
  return bad(check, flaw, CLOCK_REMEDY)
}

/** By the ingress, where the agent's own domain is served. */
function serviceDate(
  { domain, ingress }: Config['agent'],
  stop: AbortSignal,
): Promise<number | undefined> {
  const connectTo = ingress
  if (domain === undefined && connectTo === undefined) return Promise.resolve(undefined)
  const host = domain ?? formatListenAddress(connectTo ?? { host: 'localhost', port: 443 })
  return readServiceDate([{ url: `https://${host}/`, connectTo }], stop)
}

function readCaCert(path: string | undefined): string | undefined {
  try {
    return path === undefined ? undefined : readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
