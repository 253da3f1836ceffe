import * as z from 'zod'
import { isInternal } from '../../records/domain-name.ts'
import { type EndpointProtocol, ingressTypeOf } from '../../records/endpoint-protocol.ts'

/** Facts of a claim's endpoint, for nodes that route visitors to it. */
export const ClaimFactsSchema = z.object({
  /** New for each claim, so that a release cannot hit a later claim. */
  endpointId: z.string(),
  kind: z.enum(['agent', 'cloud']),
  protocol: z.enum(['http', 'https', 'tcp', 'tls']),
  url: z.string(),
  ownerId: z.string().nullable(),
  /** TLS of its visitors ends at its home. */
  endsTls: z.boolean(),
  /** All accounts find this internal name. */
  isShared: z.boolean(),
  sessionId: z.string().nullable(),
  credentialId: z.string().nullable(),
  /** By which an agent says that it is back. */
  clientId: z.string().nullable(),
  deviceId: z.string().nullable(),
  instance: z.string().nullable(),
  /** Increases with each session of the device. */
  generation: z.number().int(),
  /** The node that it was given up for, until that has it. */
  movesTo: z.string().optional(),
})
export type ClaimFacts = z.infer<typeof ClaimFactsSchema>

/** Key of a name: public names share one scope, internal names have one for each account. */
export const ClaimKeySchema = z.object({
  scope: z.string(),
  entrance: z.enum(['http', 'https', 'tcp']),
  host: z.string(),
  /** Empty for a single endpoint; else the member of a pool. */
  member: z.string(),
})
export type ClaimKey = Readonly<z.infer<typeof ClaimKeySchema>>

/** Whether two endpoints are of one process of a device, at one time and at another. */
export function isSameProcess(a: ClaimFacts, b: ClaimFacts): boolean {
  if (a.ownerId !== b.ownerId) return false
  if (a.clientId !== null && a.clientId === b.clientId) return true
  const isNamed = a.deviceId !== null && a.instance !== null
  return isNamed && a.deviceId === b.deviceId && a.instance === b.instance
}

/** A name that this node wants, or has. */
export interface Claim {
  readonly key: ClaimKey
  readonly facts: ClaimFacts
}

/** A claim as the database shows it; without a node it was given up. */
export interface ClaimRow extends ClaimKey {
  readonly node: string | null
  readonly epoch: number
  readonly facts: ClaimFacts
}

/** Holder of a name. */
export const ClaimHolderSchema = z.object({
  nodeId: z.string(),
  epoch: z.number().int(),
  facts: ClaimFactsSchema,
})
export type ClaimHolder = z.infer<typeof ClaimHolderSchema>

/** Thrown when another node has the name. */
export class ClaimHeldError extends Error {
  override readonly name = 'ClaimHeldError'
  readonly holder: ClaimHolder

  constructor(holder: ClaimHolder) {
    super(`${holder.facts.url} is online on another node`)
    this.holder = holder
  }
}

/** Thrown while the node may take no names: its lease is over, or the database is away. */
export class NoClaimsError extends Error {
  override readonly name = 'NoClaimsError'
}

export const PUBLIC_SCOPE = ''
/** Scope of internal names that all accounts find. */
export const SHARED_SCOPE = 'shared'

/** The key of an endpoint's name in the scope in which it has to be the only one. */
export function claimKey(
  { protocol, host }: { readonly protocol: EndpointProtocol; readonly host: string },
  ownerId: string | null,
  member = '',
): ClaimKey {
  const scope = isInternal(host) ? scopeOf(ownerId) : PUBLIC_SCOPE
  return { scope, entrance: ingressTypeOf(protocol), host, member }
}

/** Second key of a name that is shared with all accounts. */
export function sharedKey(key: ClaimKey): ClaimKey {
  return { ...key, scope: SHARED_SCOPE }
}

/** Scope of an account's internal names; the gateway's owner has one, too. */
export function scopeOf(ownerId: string | null): string {
  return `account ${ownerId ?? ''}`
}

/** One text for each key; no part of it has a space but the scope, which comes last. */
export function keyText({ scope, entrance, host, member }: ClaimKey): string {
  return `${entrance} ${host} ${member} ${scope}`
}
