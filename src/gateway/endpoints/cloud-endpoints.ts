import type { Clock } from '../../base/clock.ts'
import { KeyedLock } from '../../base/keyed-lock.ts'
import type { Logger } from '../../base/logger.ts'
import { PolicyError } from '../../policy/document/problem.ts'
import type { CompiledPolicy } from '../../policy/policy.ts'
import type { Authority, Claim } from '../access/authority.ts'
import type { CloudEndpointStore, StoredCloudEndpoint } from '../records/cloud-endpoint-store.ts'
import { isInternal } from '../records/domain-name.ts'
import type { HttpProtocol } from '../records/endpoint-protocol.ts'
import type { ReservedDomainStore } from '../records/reserved-domain-store.ts'
import type { IdSource } from '../records/resource-id.ts'
import { checkLength, ServiceError } from '../records/service-error.ts'
import { type CloudEndpoint, EndpointTraffic } from './endpoint.ts'
import { checkAddressFree, checkBindings, checkEndpointHost } from './endpoint-host.ts'
import { type EndpointPolicies, type PolicyPlace, problemsText } from './endpoint-policies.ts'
import type { EndpointRegistry } from './endpoint-registry.ts'
import type { EndpointUrls } from './endpoint-urls.ts'

const MAX_DESCRIPTION = 255
const MAX_METADATA = 4_096
const URL_FORM = /^([a-z][a-z0-9+.-]*):\/\/([^/?#@:]+)(?::(\d{1,5}))?\/?$/i
const SCHEME = /^[a-z][a-z0-9+.-]*:\/\//i

export interface CloudEndpointsDeps {
  readonly cloudEndpointStore: CloudEndpointStore
  readonly registry: EndpointRegistry
  readonly domains: ReservedDomainStore
  readonly authority: Authority
  readonly policies: EndpointPolicies
  readonly urls: EndpointUrls
  readonly ids: IdSource
  /** Sees to it that HTTPS clients of a host find a certificate. */
  readonly coverHost: (host: string) => Promise<void>
  readonly log: Logger
  readonly clock: Clock
}

/** What can be chosen, and changed later. */
export interface CloudEndpointSettings {
  readonly description?: string | undefined
  readonly metadata?: string | undefined
  readonly bindings?: readonly string[] | undefined
  /** Whether it shares its address with others of its account. */
  readonly isPooled?: boolean | undefined
  /** Whether policies of all accounts find it; for an internal host only. */
  readonly isShared?: boolean | undefined
}

export interface CloudEndpointRequest extends CloudEndpointSettings {
  /** `https://host` or `http://host`, with or without the port of the scheme or the ingress. */
  readonly url: string
  readonly trafficPolicy: string
  /** The bot user that it is for; unless given, the owner of its domain. */
  readonly ownerId?: string | null | undefined
}

export interface CloudEndpointChange extends CloudEndpointSettings {
  readonly url?: string | undefined
  readonly trafficPolicy?: string | undefined
}

interface Place {
  readonly protocol: HttpProtocol
  readonly host: string
}

/** Whether who asks may use the gateway's own domains for every account. */
export type CloudEndpointAuthor = Pick<Claim, 'isGranted'>

/** The endpoints that last until they are deleted. Every refusal is a ServiceError. */
export class CloudEndpoints {
  readonly #deps: CloudEndpointsDeps
  /** One change of an endpoint at a time: each goes on from the one before. */
  readonly #updates = new KeyedLock()

  constructor(deps: CloudEndpointsDeps) {
    this.#deps = deps
  }

  /** Brings those that are kept online, before there is anybody who could take their hosts. */
  async restore(): Promise<void> {
    const { cloudEndpointStore, registry, coverHost } = this.#deps
    for (const stored of cloudEndpointStore.all()) {
      await coverHost(stored.host)
      const endpoint = this.#open(stored, this.#restorePolicy(stored), new EndpointTraffic())
      registry.add(endpoint, { isShared: stored.isShared })
    }
  }

  /** It is on disk and online when this resolves. */
  async create(request: CloudEndpointRequest, author: CloudEndpointAuthor): Promise<CloudEndpoint> {
    const { cloudEndpointStore, registry, ids, clock } = this.#deps
    const { trafficPolicy, description = '', metadata = '' } = request
    const { isShared = false, isPooled = false } = request
    const place = this.#readUrl(request.url)
    const ownerId = this.#ownerOf(place, request.ownerId)
    const claim = { ...author, ownerId }
    await this.#prepare(place, claim)
    const check = () => {
      this.#checkSettings(request, place.host, claim)
      checkAddressFree({ ...place, ownerId, isShared, isPooled }, registry)
    }
    check()
    const id = ids.next('ep')
    const poolMember = poolMemberOf({ id, isPooled })
    const policy = await this.#compile(trafficPolicy, { ...place, ownerId, poolMember })
    // From here on nothing waits: what is checked stays true.
    check()
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
    cloudEndpointStore.insert(stored)
    const endpoint = this.#open(stored, policy, new EndpointTraffic())
    registry.add(endpoint, { isShared })
    return endpoint
  }

  /** The next request finds it changed. Undefined when it was deleted meanwhile. */
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
    const wanted = change.url === undefined ? undefined : this.#readUrl(change.url)
    const { cloudEndpointStore, registry, clock } = this.#deps
    const ownerId = cloudEndpointStore.get(id)?.ownerId ?? null
    const claim = { ...author, ownerId }
    if (wanted) await this.#prepare(wanted, claim)
    const found = () => {
      const stored = cloudEndpointStore.get(id)
      const before = registry.find(id)
      return stored && before?.type === 'cloud' ? { stored, before } : undefined
    }
    const earlier = found()
    if (!earlier) return undefined
    const { stored, before } = earlier
    const place = wanted ?? { protocol: stored.protocol, host: stored.host }
    if (place.protocol !== stored.protocol) {
      throw new ServiceError(
        18005,
        `The scheme of ${before.url} cannot change: delete the endpoint and make another.`,
      )
    }
    const { isShared = stored.isShared, isPooled = stored.isPooled } = change
    const check = () => {
      this.#checkSettings({ ...change, isShared }, place.host, claim)
      checkAddressFree({ ...place, ownerId, isShared, isPooled }, registry, before)
    }
    check()
    const { trafficPolicy = stored.trafficPolicy } = change
    const { description = stored.description, metadata = stored.metadata } = change
    const isSamePolicy = change.trafficPolicy === undefined && place.host === stored.host
    const policy = isSamePolicy
      ? before.policy
      : await this.#compile(trafficPolicy, { ...place, ownerId }, () => before.policy)
    // From here on nothing waits: what is checked stays true.
    check()
    if (!found()) return undefined
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
    cloudEndpointStore.replace(updated)
    const endpoint = this.#open(updated, policy, before.traffic)
    registry.setShared(before, false)
    registry.replace(before, endpoint)
    registry.setShared(endpoint, isShared)
    return endpoint
  }

  /** The next request finds nothing; what is under way goes on. */
  delete(endpoint: CloudEndpoint): void {
    const { cloudEndpointStore, registry, policies } = this.#deps
    cloudEndpointStore.delete(endpoint.id)
    registry.remove(endpoint)
    policies.remember(endpoint, endpoint.policy)
  }

  /** After a bot user was deleted, and with it what is kept of its endpoints: they go offline. */
  forgetOwner(ownerId: string): void {
    const { registry } = this.#deps
    for (const endpoint of [...registry.all()]) {
      if (endpoint.type === 'cloud' && endpoint.ownerId === ownerId) registry.remove(endpoint)
    }
  }

  #ownerOf({ host }: Place, asked: string | null | undefined): string | null {
    if (asked !== undefined || isInternal(host)) return asked ?? null
    return this.#deps.domains.findCovering(host)?.ownerId ?? null
  }

  #open(
    { createdAt, isShared: _isShared, isPooled, ...stored }: StoredCloudEndpoint,
    policy: CompiledPolicy,
    traffic: EndpointTraffic,
  ): CloudEndpoint {
    const { urls } = this.#deps
    return {
      ...stored,
      type: 'cloud',
      poolMember: poolMemberOf({ id: stored.id, isPooled }),
      // The ingress may listen later than this.
      get url() {
        return urls.of(stored.protocol, stored.host)
      },
      openedAt: createdAt,
      policy,
      traffic,
    }
  }

  /** Throws ServiceError 18001, 18003, 18022 or that of a host that cannot be. */
  #readUrl(url: string): Place {
    if (!SCHEME.test(url)) {
      throw new ServiceError(18022, 'The URL needs a scheme: write https://host or http://host.')
    }
    const [, scheme = '', name = '', port] = URL_FORM.exec(url) ?? []
    if (name === '') {
      throw new ServiceError(18001, 'The URL cannot be used: write https://host or http://host.')
    }
    const protocol = scheme.toLowerCase()
    if (protocol !== 'https' && protocol !== 'http') {
      throw new ServiceError(
        18022,
        `The scheme ${protocol} is not supported here: use https or http.`,
      )
    }
    const host = name.toLowerCase()
    checkEndpointHost(host)
    if (port !== undefined && !this.#deps.urls.mayName(protocol, host, Number(port))) {
      throw new ServiceError(18003, `There is no port ${port} here: leave it out.`)
    }
    return { protocol, host }
  }

  /** Only a host that may be used is worth a certificate. */
  async #prepare({ host }: Place, claim: Claim): Promise<void> {
    this.#deps.authority.checkReserved(host, claim)
    await this.#deps.coverHost(host)
  }

  #checkSettings(settings: CloudEndpointSettings, host: string, claim: Claim): void {
    const { description = '', metadata = '', bindings = [], isShared } = settings
    // Its domain may have been given up a moment ago.
    this.#deps.authority.checkReserved(host, claim)
    checkBindings(bindings, host, 18014)
    checkLength(description, MAX_DESCRIPTION, 18012, 'description')
    checkLength(metadata, MAX_METADATA, 18013, 'metadata')
    if (isShared && !isInternal(host)) {
      throw new ServiceError(18014, 'The field shared is for hosts below .internal only.')
    }
  }

  /** Throws ServiceError with the code of the policy's first problem, or 2235. */
  async #compile(
    trafficPolicy: string,
    place: PolicyPlace,
    previousOf?: () => CompiledPolicy,
  ): Promise<CompiledPolicy> {
    let policy: CompiledPolicy
    try {
      policy = await this.#deps.policies.compileInTurns(trafficPolicy, place, previousOf)
    } catch (error) {
      if (error instanceof PolicyError) throw new ServiceError(codeOf(error), problemsText(error))
      throw error
    }
    if (policy.alwaysEnds) return policy
    throw new ServiceError(
      2235,
      'The traffic policy may let a request go on, and there is no device behind a cloud endpoint. End it with a rule without expressions that answers or forwards, such as custom-response, deny or forward-internal.',
    )
  }

  /** A policy that was good once and no longer is must not let its host go: all is refused. */
  #restorePolicy(stored: StoredCloudEndpoint): CompiledPolicy {
    const { id, host, trafficPolicy } = stored
    const { policies, log } = this.#deps
    const place = { ...stored, poolMember: poolMemberOf(stored) }
    try {
      return policies.compile(trafficPolicy, place)
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error
      log.error({ endpoint: id, host, problem: problemsText(error) }, 'cloud endpoint is of no use')
      return policies.compile(null, place)
    }
  }
}

/** It stays the same member for as long as it is kept. */
function poolMemberOf({ id, isPooled }: Pick<StoredCloudEndpoint, 'id' | 'isPooled'>) {
  return isPooled ? id : undefined
}

function codeOf({ problems }: PolicyError): number {
  const first = problems.find(({ severity }) => severity === 'error')
  return Number(/\d+$/.exec(first?.code ?? '')?.[0] ?? 2204)
}
