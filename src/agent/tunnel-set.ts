import { isDeepStrictEqual } from 'node:util'
import { AppError, type FieldError } from '../base/app-error.ts'
import { Semaphore } from '../base/semaphore.ts'
import { newTunnelId, type Tunnel, type TunnelSpec } from './tunnel.ts'
import type { StoredTunnel } from './tunnel-store.ts'

/** What becomes of one tunnel when a whole set takes the place of what there is. */
export interface SetStep {
  readonly action: 'create' | 'replace' | 'keep' | 'delete'
  /** Its place in the list that was asked for; undefined for what is deleted. */
  readonly at: number | undefined
  /** Undefined for what is created. */
  readonly before: StoredTunnel | undefined
  /** Undefined for what is deleted; the same as before for what is kept. */
  readonly after: StoredTunnel | undefined
}

/** What became, or would become, of one tunnel of a whole set. */
export interface SetOutcome {
  readonly step: SetStep
  /** As it is now; undefined where there is none: deleted, or not created yet. */
  readonly tunnel: Tunnel | undefined
  /** Online as it is wanted now. */
  readonly isInForce: boolean
}

export interface SetRequest {
  /** Only says what would be done. */
  readonly isDryRun?: boolean
  readonly when?: Precondition<readonly StoredTunnel[]> | undefined
  /** Told what is going to be written, right before it is. */
  readonly onPlan?: (steps: readonly SetStep[]) => void
}

/**
 * Asked right before a change, with what there is then: throws where that is not what the caller has
 * seen. Of a tunnel that is not there it gets undefined.
 */
export type Precondition<Present> = (present: Present) => void

export interface SetLimits {
  /** The agent's own domain, which no tunnel can have. */
  readonly ownDomain: string | undefined
  readonly maxTunnels: number
}

/** More than a person reads. */
const MAX_ERRORS = 50
/** Names to resolve and policies to check. */
const CHECKS_AT_ONCE = 8

/** Throws AppError for a list that no device can have, whatever tunnels there are. */
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
 * In the order of the list, then what is to go, oldest first. A tunnel is known by its domain. One of
 * the list that has no address takes that of a TCP tunnel that the list does not name: of one that is
 * as it is asked for, else of one to the same service.
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
    present.filter(
      ({ spec: { protocol, domain } }) =>
        protocol === 'tcp' && (domain === '' || !named.has(domain)),
    ),
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
  pair((asked, { spec }) => asked.forwardsTo === spec.forwardsTo)
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
 * Asks of everything that would be new whether the device allows it, once for what is the same.
 * Throws an AppError with the code of the first refusal and the places of all.
 */
export async function requireSteps(
  steps: readonly SetStep[],
  require: (spec: TunnelSpec) => Promise<void>,
): Promise<void> {
  const semaphore = new Semaphore(CHECKS_AT_ONCE)
  const asked = new Map<string, Promise<AppError | undefined>>()
  const refusals = await Promise.all(
    steps.map(async ({ action, at, after }) => {
      if (!after || action === 'keep') return []
      const { domain: _domain, ...spec } = after.spec
      const key = JSON.stringify(spec)
      const answer = asked.get(key) ?? semaphore.run(() => refusalOf(require(after.spec)))
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
