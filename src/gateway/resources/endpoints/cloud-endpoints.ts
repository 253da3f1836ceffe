import { isDeepStrictEqual } from 'node:util'
import type { Clock } from '../../../base/clock.ts'
import type { Logger } from '../../../base/logger.ts'
import { KeyedLock } from '../../../base/semaphore.ts'
import type { PolicyReading } from '../../../policy/document/policy-text.ts'
import { PolicyError } from '../../../policy/document/problem.ts'
import type { CompiledPolicy } from '../../../policy/policy.ts'
import type { Database } from '../../../store/database.ts'
import type { Authority } from '../../access/authority.ts'
import type { NameClaims } from '../../access/name-claims.ts'
import type { NameUse } from '../../access/name-rules.ts'
import { type CloudEndpoint, EndpointTraffic } from '../../endpoints/endpoint.ts'
import {
  checkAddressFree,
  checkBindings,
  type EndpointUrls,
} from '../../endpoints/endpoint-host.ts'
import {
  type EndpointPolicies,
  type PolicyPlace,
  problemsText,
  refusedTodayText,
} from '../../endpoints/endpoint-policies.ts'
import type { EndpointRegistry } from '../../endpoints/endpoint-registry.ts'
import type { TcpAddresses } from '../../endpoints/tcp-addresses.ts'
import type { AccountQuotas } from '../../records/account-quotas.ts'
import { isInternal } from '../../records/domain-name.ts'
import type { EndpointAddress } from '../../records/endpoint-protocol.ts'
import type { IdSource } from '../../records/resource-id.ts'
import type { ItemChange } from '../../records/resource-table.ts'
import { checkTexts, ServiceError } from '../../records/service-error.ts'
import type { CloudEndpointStore, StoredCloudEndpoint } from './cloud-endpoint-store.ts'

export interface CloudEndpointsDeps {
  readonly database: Pick<Database, 'change'>
  readonly cloudEndpointStore: CloudEndpointStore
  readonly quotas: AccountQuotas
  /** Claims each name if there are other nodes. */
  readonly names: NameClaims
  readonly registry: EndpointRegistry
  readonly authority: Authority
  readonly policies: EndpointPolicies
  readonly urls: EndpointUrls
  readonly ids: IdSource
  /** Makes sure that HTTPS clients of a host get a certificate. */
  readonly coverHost: (host: string, ownerId: string | null) => Promise<void>
  /** Undefined if public TCP endpoints are off. */
  readonly tcpAddresses: TcpAddresses | undefined
  /** Listens on a TCP address. Throws ServiceError 334 if the address is not available. */
  readonly openAddress: (address: string) => Promise<void>
  readonly log: Logger
  readonly clock: Clock
}

/** Settings that can be chosen at first and changed later. */
export interface CloudEndpointSettings {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
  readonly bindings?: readonly string[] | undefined
  /** Whether it shares its address with other endpoints of its account. */
  readonly isPooled?: boolean | undefined
  /** Whether policies of all accounts can reach it. Only for internal hosts. */
  readonly isShared?: boolean | undefined
}

export interface CloudEndpointRequest extends CloudEndpointSettings {
  /** With or without the port of the scheme or the ingress. A TCP URL needs its port. */
  readonly url: string
  readonly trafficPolicy: string
  /** Owning bot user. Default: the owner of the domain. */
  readonly ownerId?: string | null | undefined
}

export interface CloudEndpointChange extends CloudEndpointSettings {
  readonly url?: string | undefined
  readonly trafficPolicy?: string | undefined
}

/** Whether the caller may use the gateway's own domains for every account. */
export type CloudEndpointAuthor = Pick<NameUse, 'isGranted'>

/** The endpoint was changed or deleted meanwhile. Nothing is stored and the change is not concluded. */
class OvertakenError extends Error {
  readonly by: 'gone' | 'changed'

  constructor(by: 'gone' | 'changed') {
    super(by)
    this.by = by
  }
}

type PolicyOfRow = Pick<CloudEndpoint, 'policy' | 'policyProblem'>

/** A compiled policy for the row that is about to be stored. */
interface Prepared extends PolicyOfRow {
  readonly stored: StoredCloudEndpoint
}

/**
 * Cloud endpoints: they last until they are deleted. Every refusal is a ServiceError. The endpoints online
 * follow the stored rows, no matter which node changes the rows.
 */
export class CloudEndpoints {
  readonly #deps: CloudEndpointsDeps
  /** Runs changes of an endpoint one at a time, each based on the result of the previous change. */
  readonly #updates = new KeyedLock()
  /**
   * Changes under way here, by endpoint id. With the prepared policy, a row is online as soon as it is
   * stored.
   */
  readonly #prepared = new Map<string, Prepared>()

  constructor(deps: CloudEndpointsDeps) {
    this.#deps = deps
    deps.cloudEndpointStore.onChange((change) => this.#follow(change))
  }

  /** Brings stored endpoints online, before other clients can take their hosts. */
  async restore(): Promise<void> {
    const { cloudEndpointStore, registry, coverHost } = this.#deps
    for (const stored of cloudEndpointStore.all()) {
      if (stored.protocol !== 'tcp') await coverHost(stored.host, stored.ownerId)
      if (registry.find(stored.id)) continue
      const reading = await this.#readStored(stored)
      this.#putOnline(stored, this.#restorePolicy(stored, { reading }))
    }
  }

  /** The endpoint is on disk and online when this resolves. */
  async create(request: CloudEndpointRequest, author: CloudEndpointAuthor): Promise<CloudEndpoint> {
    const { cloudEndpointStore, registry, quotas, ids, clock } = this.#deps
    const { trafficPolicy, description = '', metadata = '' } = request
    const { isShared = false, isPooled = false } = request
    const place = this.#placeOf(request.url)
    const ownerId = this.#ownerOf(place, request.ownerId)
    const claim = { ...author, ownerId }
    await this.#prepare(place, claim)
    const check = () => {
      this.#checkSettings(request, place, claim)
      checkAddressFree({ ...place, ownerId, isShared, isPooled }, registry)
    }
    check()
    const id = ids.next('ep')
    const poolMember = poolMemberOf({ id, isPooled })
    const policy = await this.#compile(trafficPolicy, { ...place, ownerId, poolMember })
    await this.#listen(place)
    const now = clock.now()
    const stored = {
      ...place,
      ownerId,
      isShared,
      isPooled,
      id,
      trafficPolicy,
      description,
      metadata,
      createdAt: now,
      updatedAt: now,
    }
    await this.#keep(id, { stored, policy }, () => {
      check()
      this.#checkKept(stored)
      quotas.check(ownerId, 'cloud_endpoints')
      quotas.check(ownerId, 'policy_bytes', Buffer.byteLength(trafficPolicy))
      cloudEndpointStore.insert(stored)
    })
    const endpoint = this.#online(id)
    if (!endpoint) throw new Error('the cloud endpoint is stored but not online')
    return endpoint
  }

  /** The next request sees the change. Resolves with undefined if the endpoint was deleted meanwhile. */
  update(
    id: string,
    change: CloudEndpointChange,
    author: CloudEndpointAuthor,
  ): Promise<CloudEndpoint | undefined> {
    return this.#updates.run(id, () => this.#update(id, change, author))
  }

  async #update(
    id: string,
    change: CloudEndpointChange,
    author: CloudEndpointAuthor,
  ): Promise<CloudEndpoint | undefined> {
    const wanted = change.url === undefined ? undefined : this.#placeOf(change.url)
    const { cloudEndpointStore, registry, clock } = this.#deps
    const ownerId = cloudEndpointStore.get(id)?.ownerId ?? null
    const claim = { ...author, ownerId }
    if (wanted) await this.#prepare(wanted, claim)
    const found = () => {
      const stored = cloudEndpointStore.get(id)
      const before = this.#online(id)
      return stored && before && { stored, before }
    }
    const earlier = found()
    if (!earlier) return undefined
    const { stored, before } = earlier
    const place = wanted ?? { protocol: stored.protocol, host: stored.host }
    if (place.protocol !== stored.protocol) {
      throw new ServiceError(
        18005,
        `The scheme of ${before.url} cannot be changed. Delete the endpoint and create a new one.`,
      )
    }
    const { isShared = stored.isShared, isPooled = stored.isPooled } = change
    const check = () => {
      this.#checkSettings({ ...change, isShared }, place, claim)
      checkAddressFree({ ...place, ownerId, isShared, isPooled }, registry, before)
    }
    check()
    const { trafficPolicy = stored.trafficPolicy } = change
    const { description = stored.description, metadata = stored.metadata } = change
    const isStored = trafficPolicy === stored.trafficPolicy
    const isSamePolicy = change.trafficPolicy === undefined && place.host === stored.host
    const asked = { ...place, ownerId, isStored }
    const compiled: PolicyOfRow = isSamePolicy
      ? { policy: before.policy, policyProblem: before.policyProblem }
      : { policy: await this.#compile(trafficPolicy, asked, () => before.policy) }
    await this.#listen(place)
    const updated = {
      ...stored,
      ...place,
      isShared,
      isPooled,
      trafficPolicy,
      description,
      metadata,
      updatedAt: clock.now(),
    }
    try {
      await this.#keep(id, { stored: updated, ...compiled }, () => {
        const now = found()
        if (!now) throw new OvertakenError('gone')
        if (!isDeepStrictEqual(now.stored, stored)) throw new OvertakenError('changed')
        check()
        this.#checkKept(updated)
        const grown = Buffer.byteLength(trafficPolicy) - Buffer.byteLength(stored.trafficPolicy)
        this.#deps.quotas.check(ownerId, 'policy_bytes', grown)
        cloudEndpointStore.replace(updated)
      })
    } catch (error) {
      if (!(error instanceof OvertakenError)) throw error
      // Settings that the change does not mention keep their latest values.
      return error.by === 'changed' ? this.#update(id, change, author) : undefined
    }
    return this.#online(id)
  }

  /** Deletes the endpoint. New requests no longer find it; requests under way continue. */
  async delete({ id }: CloudEndpoint): Promise<void> {
    const { cloudEndpointStore, database } = this.#deps
    await database.change(() => cloudEndpointStore.delete(id), {
      concludes: id,
      mayUseReserve: true,
    })
  }

  /** The endpoint as the open transaction is about to store it. */
  beingKept(id: string): { endpoint: CloudEndpoint; isShared: boolean } | undefined {
    const prepared = this.#prepared.get(id)
    if (!prepared) return undefined
    const { stored } = prepared
    const traffic = this.#online(id)?.traffic ?? new EndpointTraffic()
    return { endpoint: this.#open(stored, prepared, traffic), isShared: stored.isShared }
  }

  async #keep<T>(id: string, prepared: Prepared, change: () => T): Promise<T> {
    const { database, names } = this.#deps
    const { stored } = prepared
    const keep = () => database.change(change, { concludes: id })
    this.#prepared.set(id, prepared)
    try {
      // If the endpoint is already online with this host, it stays at its node, which may be another node.
      if (this.#online(id)?.host === stored.host) return await keep()
      const { url, poolMember: member = '' } = this.#open(stored, prepared, new EndpointTraffic())
      const wanted = { ...stored, url, member, session: undefined, endsTls: false }
      return await names.open(wanted, keep)
    } finally {
      this.#prepared.delete(id)
    }
  }

  /** A stored endpoint may be about to come online. Throws ServiceError 334 if the name is taken. */
  #checkKept(stored: StoredCloudEndpoint): void {
    if (!this.#deps.cloudEndpointStore.isTaken(stored)) return
    throw new ServiceError(334, `A cloud endpoint already uses the name ${stored.host}.`)
  }

  #online(id: string): CloudEndpoint | undefined {
    const endpoint = this.#deps.registry.find(id)
    return endpoint?.type === 'cloud' ? endpoint : undefined
  }

  #follow({ before, after }: ItemChange<StoredCloudEndpoint>): void {
    const { registry, policies, log } = this.#deps
    if (after) {
      const prepared = this.#prepared.get(after.id)
      const { trafficPolicy, host } = prepared?.stored ?? {}
      if (prepared && trafficPolicy === after.trafficPolicy && host === after.host) {
        this.#putOnline(after, prepared)
        return
      }
      this.#updates
        .run(after.id, () => this.#catchUp(after.id))
        .catch((err) =>
          log.error({ err, endpoint: after.id }, 'cloud endpoint could not be brought online'),
        )
      return
    }
    const gone = before && this.#online(before.id)
    if (!gone) return
    registry.remove(gone)
    policies.remember(gone, gone.policy)
  }

  /** Brings an endpoint online that another node or request has changed. */
  async #catchUp(id: string): Promise<void> {
    const { cloudEndpointStore, coverHost } = this.#deps
    const found = cloudEndpointStore.get(id)
    if (found && found.protocol !== 'tcp') await coverHost(found.host, found.ownerId)
    const reading = found && (await this.#readStored(found))
    // Read again, because it may have changed meanwhile.
    const stored = cloudEndpointStore.get(id)
    // Another turn follows for another policy.
    if (!stored || stored.trafficPolicy !== found?.trafficPolicy) return
    const previous = this.#online(id)?.policy
    this.#putOnline(stored, this.#restorePolicy(stored, { reading, previous }))
  }

  /** Replaces the current version of the endpoint if it is online. */
  #putOnline(stored: StoredCloudEndpoint, policy: PolicyOfRow): void {
    const { registry } = this.#deps
    const { isShared } = stored
    const before = this.#online(stored.id)
    const endpoint = this.#open(stored, policy, before?.traffic ?? new EndpointTraffic())
    if (!before) {
      registry.add(endpoint, { isShared })
      return
    }
    registry.setShared(before, false)
    registry.replace(before, endpoint)
    registry.setShared(endpoint, isShared)
  }

  #placeOf(url: string): EndpointAddress {
    const { urls, tcpAddresses } = this.#deps
    const place = urls.read(url)
    if (place.protocol !== 'tcp' || isInternal(place.host)) return place
    if (tcpAddresses) return { ...place, host: tcpAddresses.read(place.host, 18003) }
    throw new ServiceError(
      18022,
      'TCP endpoints are off at this gateway. To enable them, set GATEWAY_TCP_LISTEN, such as 0.0.0.0:20000-20100.',
    )
  }

  #ownerOf(place: EndpointAddress, asked: string | null | undefined): string | null {
    if (asked !== undefined || isInternal(place.host)) return asked ?? null
    return this.#deps.authority.accountFor(place)
  }

  #open(
    { createdAt, isShared: _isShared, isPooled, ...stored }: StoredCloudEndpoint,
    { policy, policyProblem }: PolicyOfRow,
    traffic: EndpointTraffic,
  ): CloudEndpoint {
    const { urls } = this.#deps
    return {
      ...stored,
      type: 'cloud',
      poolMember: poolMemberOf({ id: stored.id, isPooled }),
      // A getter, because the ingress may start to listen later.
      get url() {
        return urls.of(stored.protocol, stored.host)
      },
      openedAt: createdAt,
      policy,
      policyProblem,
      traffic,
    }
  }

  /** Checks first whether the address may be used: only then a certificate or a port is worth its cost. */
  async #prepare(place: EndpointAddress, claim: NameUse): Promise<void> {
    this.#checkUse(place, claim)
    if (place.protocol !== 'tcp') await this.#deps.coverHost(place.host, claim.ownerId)
  }

  #checkUse(place: EndpointAddress, claim: NameUse): void {
    this.#deps.authority.checkUse(place, claim)
    if (place.protocol === 'tcp') this.#deps.tcpAddresses?.requireShare(claim.ownerId, place.host)
  }

  #checkSettings(settings: CloudEndpointSettings, place: EndpointAddress, claim: NameUse): void {
    const { description = '', metadata = '', bindings = [], isShared } = settings
    const { host } = place
    // The domain may have been released a moment ago.
    this.#checkUse(place, claim)
    checkBindings(bindings, host, 18014)
    checkTexts({ description, metadata }, [18012, 18013])
    if (isShared && !isInternal(host)) {
      throw new ServiceError(18014, 'The field shared is only for hosts below .internal.')
    }
  }

  /** Must run last: a port without an endpoint is closed after some time. */
  async #listen({ protocol, host }: EndpointAddress): Promise<void> {
    if (protocol === 'tcp') await this.#deps.openAddress(host)
  }

  /** Throws ServiceError with the code of the policy's first problem, or 2235. */
  async #compile(
    trafficPolicy: string,
    place: PolicyPlace & { readonly isStored?: boolean },
    previousOf?: () => CompiledPolicy,
  ): Promise<CompiledPolicy> {
    let policy: CompiledPolicy
    try {
      policy = await this.#deps.policies.compileInTurns(
        trafficPolicy,
        { ...place, credentialId: null },
        previousOf,
      )
    } catch (error) {
      if (error instanceof PolicyError) throw new ServiceError(codeOf(error), problemsText(error))
      throw error
    }
    if (policy.alwaysEnds) return policy
    throw new ServiceError(
      2235,
      place.protocol === 'tcp' || place.protocol === 'tls'
        ? 'The traffic policy of a cloud endpoint must handle every connection. End on_tcp_connect with a rule without expressions that forwards or closes it: forward-internal or deny.'
        : 'The traffic policy of a cloud endpoint must handle every request. End it with a rule without expressions that answers or forwards, such as custom-response, deny or forward-internal.',
    )
  }

  /** A stored policy comes online even if the thread for YAML fails: `#restorePolicy` then reads the text. */
  async #readStored({ id, trafficPolicy, ownerId }: StoredCloudEndpoint) {
    try {
      return await this.#deps.policies.read(trafficPolicy, ownerId)
    } catch (err) {
      this.#deps.log.warn({ err, endpoint: id }, 'reading a stored policy in the main thread')
      return undefined
    }
  }

  /**
   * Compiles a stored policy. If it cannot run, the endpoint keeps its host and refuses all traffic. If only
   * new policies like it are refused, it runs as before.
   */
  #restorePolicy(
    stored: StoredCloudEndpoint,
    {
      reading,
      previous,
    }: { reading: PolicyReading | undefined; previous?: CompiledPolicy | undefined },
  ): PolicyOfRow {
    const { id, host, trafficPolicy } = stored
    const { policies, log } = this.#deps
    const place = { ...stored, poolMember: poolMemberOf(stored), credentialId: null }
    try {
      const policy = policies.compile(trafficPolicy, place, previous, reading)
      const problem = refusedTodayText(policy)
      if (problem)
        log.warn({ endpoint: id, host, problem }, 'cloud endpoint has an outdated policy')
      return { policy }
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      const policyProblem = problemsText(error)
      log.error(
        { endpoint: id, host, problem: policyProblem },
        'cloud endpoint refuses all traffic: its policy cannot run in this version, replace it',
      )
      return { policy: policies.compile(null, place), policyProblem }
    }
  }
}

/** Uses the endpoint id, so that the pool member stays the same for the endpoint's lifetime. */
function poolMemberOf({ id, isPooled }: Pick<StoredCloudEndpoint, 'id' | 'isPooled'>) {
  return isPooled ? id : undefined
}

function codeOf({ problems }: PolicyError): number {
  const first = problems.find(({ severity }) => severity === 'error')
  return Number(/\d+$/.exec(first?.code ?? '')?.[0] ?? 2204)
}
