import { isDeepStrictEqual } from 'node:util'
import { AppError, type FieldError } from '../base/app-error.ts'
import { Semaphore } from '../base/semaphore.ts'
import { hasSamePolicy, newTunnelId, type Tunnel, type TunnelSpec } from './tunnel.ts'
import type { StoredTunnel } from './tunnel-store.ts'

/** Change of one tunnel when a set replaces all tunnels. */
export interface SetStep {
  readonly action: 'create' | 'replace' | 'keep' | 'delete'
  /** Index in the requested list. Undefined for a deleted tunnel. */
  readonly at: number | undefined
  /** Undefined for a created tunnel. */
  readonly before: StoredTunnel | undefined
  /** Undefined for a deleted tunnel. Same as `before` for a kept tunnel. */
  readonly after: StoredTunnel | undefined
}

/** Result for one tunnel of a set. For a dry run, the planned change. */
export interface SetOutcome {
  readonly step: SetStep
  /** Current tunnel. Undefined if it was deleted, or is not created yet. */
  readonly tunnel: Tunnel | undefined
  /** Whether it is online in its latest version. */
  readonly isInForce: boolean
}

export interface SetRequest {
  /** Only plans the changes. */
  readonly isDryRun?: boolean
  readonly when?: Precondition<readonly StoredTunnel[]> | undefined
  /** Called with the planned changes right before they are written. */
  readonly onPlan?: (steps: readonly SetStep[]) => void
}

/**
 * Called right before a change, with the current state. Throws if it is not the state that the caller has
 * seen. Undefined: the tunnel does not exist.
 */
export type Precondition<Present> = (present: Present) => void

export interface SetLimits {
  /** The agent's own domain, which tunnels cannot use. */
  readonly ownDomain: string | undefined
  readonly maxTunnels: number
}

/** Enough for a reader. */
const MAX_ERRORS = 50
/** Maximum number of concurrent checks, which resolve names and check policies. */
const CHECKS_AT_ONCE = 8

/** Throws an AppError for a list that is invalid for any device state. */
export function requireSet(wanted: readonly TunnelSpec[], limits: SetLimits): void {
  const { ownDomain, maxTunnels } = limits
  if (wanted.length > maxTunnels) {
    const detail = `The request has ${wanted.length} tunnels, the device allows ${maxTunnels} (AGENT_MAX_TUNNELS).`
    throw new AppError('too-many-tunnels', detail)
  }
  const own = wanted.findIndex(({ domain }) => domain !== '' && domain === ownDomain)
  if (own >= 0) {
    const detail = `${ownDomain} is reserved for the agent API (AGENT_DOMAIN).`
    throw new AppError('domain-taken', detail, { errors: [{ pointer: `/${own}/domain`, detail }] })
  }
  const places = new Map<string, number>()
  const errors: FieldError[] = []
  for (const [at, { domain }] of wanted.entries()) {
    const first = domain === '' ? undefined : places.get(domain)
    if (first === undefined) places.set(domain, at)
    else errors.push({ pointer: `/${at}/domain`, detail: `${domain} is also used at /${first}` })
  }
  if (errors.length === 0) return
  throw new AppError('invalid-request', 'Each tunnel needs its own domain.', {
    errors: errors.slice(0, MAX_ERRORS),
  })
}

/**
 * Plans the changes in the order of the list, then the deletions, oldest first. Tunnels are matched by
 * domain. An item without a domain takes over a tunnel of its protocol whose domain is not in the list: an
 * identical tunnel, or else one to the same service.
 */
export function planSet(
  wanted: readonly TunnelSpec[],
  present: readonly StoredTunnel[],
  now: number,
): SetStep[] {
  const named = new Set(wanted.map(({ domain }) => domain))
  const byDomain = new Map(present.map((stored) => [stored.spec.domain, stored]))
  const found = new Map<number, StoredTunnel>()
  for (const [at, { domain }] of wanted.entries()) {
    const stored = domain === '' ? undefined : byDomain.get(domain)
    if (stored) found.set(at, stored)
  }
  const left = new Set(
    present.filter(({ spec: { domain } }) => domain === '' || !named.has(domain)),
  )
  const pair = (isMeant: (asked: TunnelSpec, stored: StoredTunnel) => boolean) => {
    for (const [at, asked] of wanted.entries()) {
      if (asked.domain !== '' || found.has(at)) continue
      const stored = [...left].find((candidate) => isMeant(asked, candidate))
      if (!stored) continue
      found.set(at, stored)
      left.delete(stored)
    }
  }
  pair((asked, { spec }) => isDeepStrictEqual({ ...asked, domain: spec.domain }, spec))
  pair(
    ({ protocol, forwardsTo }, { spec }) =>
      protocol === spec.protocol && forwardsTo === spec.forwardsTo,
  )
  const stays = new Set(found.values())
  const deleted = present.filter((stored) => !stays.has(stored))
  return [
    ...wanted.map((asked, at) => stepOf(asked, at, found.get(at), now)),
    ...deleted.map((before): SetStep => {
      return { action: 'delete', at: undefined, before, after: undefined }
    }),
  ]
}

function stepOf(
  asked: TunnelSpec,
  at: number,
  before: StoredTunnel | undefined,
  now: number,
): SetStep {
  if (!before) {
    const after = { id: newTunnelId(), spec: asked, createdAt: now, updatedAt: now }
    return { action: 'create', at, before, after }
  }
  const spec = { ...asked, domain: before.spec.domain }
  if (isDeepStrictEqual(before.spec, spec)) return { action: 'keep', at, before, after: before }
  return { action: 'replace', at, before, after: { ...before, spec, updatedAt: now } }
}

/**
 * Checks whether the device allows all new versions. Equal tunnels are checked once. Throws an AppError with
 * the code of the first refusal and the positions of all.
 */
export async function requireSteps(
  steps: readonly SetStep[],
  require: (spec: TunnelSpec, before: TunnelSpec | undefined) => Promise<void>,
): Promise<void> {
  const semaphore = new Semaphore(CHECKS_AT_ONCE)
  const asked = new Map<string, Promise<AppError | undefined>>()
  const refusals = await Promise.all(
    steps.map(async ({ action, at, before, after }) => {
      if (!after || action === 'keep') return []
      const { domain: _domain, ...spec } = after.spec
      const key = JSON.stringify([hasSamePolicy(after.spec, before?.spec), spec])
      const check = () => refusalOf(require(after.spec, before?.spec))
      const answer = asked.get(key) ?? semaphore.run(check)
      asked.set(key, answer)
      const refusal = await answer
      return refusal ? [{ refusal, at }] : []
    }),
  )
  const all = refusals.flat()
  const [first] = all
  if (!first) return
  const errors = all.flatMap(({ refusal, at }) =>
    refusal.errors.map((error) => ({ ...error, pointer: `/${at}${error.pointer}` })),
  )
  const { code, message, serviceCode, retryAfterS } = first.refusal
  throw new AppError(code, message, {
    errors: errors.slice(0, MAX_ERRORS),
    serviceCode,
    ...(retryAfterS !== undefined && { retryAfterS }),
  })
}

async function refusalOf(checked: Promise<void>): Promise<AppError | undefined> {
  try {
    await checked
    return undefined
  } catch (error) {
    if (error instanceof AppError) return error
    throw error
  }
}
