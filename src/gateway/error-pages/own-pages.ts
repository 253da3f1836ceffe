import { BoundedCache } from '../../base/bounded-cache.ts'
import { wildcardsAbove } from '../records/domain-name.ts'
import type { ErrorKind, ErrorValues } from './error-kind.ts'
import { PageProblem, PageTemplate } from './page-template.ts'

/** A stored page without its content. */
export interface PageHead {
  readonly id: string
  readonly kind: ErrorKind
  /** Reserved domain; null: the whole gateway. */
  readonly domainId: string | null
  /** Account that has set it; null: the gateway's owner. */
  readonly ownerId: string | null
}

interface Owned {
  readonly id: string
  readonly ownerId: string | null
}

export interface OwnPagesOptions {
  readonly store: {
    /** Increases with every change. */
    readonly version: number
    heads(): readonly PageHead[]
    get(id: string): { readonly html: string } | undefined
  }
  readonly domains: { readonly version: number; find(domain: string): Owned | undefined }
  /** The reservation that a name belongs to. */
  readonly reservationOf: (host: string) => Owned | undefined
  /** Pages of the gateway's folder. */
  readonly folder: ReadonlyMap<ErrorKind, PageTemplate>
}

/** Pages of the gateway's owner are shown at names of other accounts: they run no scripts there. */
const NO_SCRIPTS = "script-src 'none'; object-src 'none'; base-uri 'none'"
/** Maximum number of cached verdicts for hosts of visitors, and of pages in memory. */
const MAX_HOSTS = 4_096
const MAX_PAGES = 64

interface FoundPage {
  /** Undefined: its scripts are the account's, on names of the account. */
  readonly contentPolicy: string | undefined
  render(values: ErrorValues): string
}

/**
 * Finds the own page for an error: that of the name's reservation, of wildcards above it, of the gateway.
 * Reads the local database alone, and only after a change.
 */
export class OwnPages {
  readonly #options: OwnPagesOptions
  #seen: readonly [pages: number, domains: number] = [-1, -1]
  /** By domain (`''`: the gateway) and kind. */
  #heads = new Map<string, PageHead>()
  #verdicts = this.#noVerdicts()
  #templates = this.#noTemplates()

  constructor(options: OwnPagesOptions) {
    this.#options = options
  }

  pageFor(hostname: string, kind: ErrorKind): FoundPage | undefined {
    this.#refresh()
    const stored = this.#heads.size === 0 ? null : this.#verdicts.get(`${kind} ${hostname}`)
    const template = stored && this.#templates.get(stored.id)
    if (template) {
      const contentPolicy = stored.ownerId === null ? NO_SCRIPTS : undefined
      return { contentPolicy, render: (values) => template.render(values) }
    }
    const { folder } = this.#options
    const ofGateway = folder.get(kind) ?? folder.get('default')
    return ofGateway && { contentPolicy: NO_SCRIPTS, render: (values) => ofGateway.render(values) }
  }

  #refresh(): void {
    const { store, domains } = this.#options
    const [pagesSeen, domainsSeen] = this.#seen
    if (pagesSeen === store.version && domainsSeen === domains.version) return
    const isNew = pagesSeen !== store.version
    this.#seen = [store.version, domains.version]
    this.#verdicts = this.#noVerdicts()
    if (!isNew) return
    this.#templates = this.#noTemplates()
    const heads = store
      .heads()
      .map((head) => [placeOf(head.domainId ?? '', head.kind), head] as const)
    this.#heads = new Map(heads)
  }

  #noVerdicts(): BoundedCache<PageHead | null> {
    return new BoundedCache((key) => {
      const [kind = '', hostname = ''] = key.split(' ')
      return this.#find(hostname, kind as ErrorKind) ?? null
    }, MAX_HOSTS)
  }

  #noTemplates(): BoundedCache<PageTemplate | null> {
    return new BoundedCache((id) => {
      const html = this.#options.store.get(id)?.html
      return html === undefined ? null : readable(html)
    }, MAX_PAGES)
  }

  #find(hostname: string, kind: ErrorKind): PageHead | undefined {
    const { domains, reservationOf, folder } = this.#options
    const holder = reservationOf(hostname)
    for (const name of holder ? [hostname, ...wildcardsAbove(hostname)] : []) {
      const reserved = domains.find(name)
      if (!reserved || reserved.ownerId !== holder?.ownerId) continue
      // A page stays with the account that set it: the domain may belong to another account since then.
      const isOwn = (page: PageHead | undefined) => page?.ownerId === reserved.ownerId
      const pages = [kind, 'default'].map((it) => this.#heads.get(placeOf(reserved.id, it)))
      const found = pages.find(isOwn)
      if (found) return found
    }
    const ofKind = this.#heads.get(placeOf('', kind))
    return ofKind ?? (folder.has(kind) ? undefined : this.#heads.get(placeOf('', 'default')))
  }
}

const placeOf = (domainId: string, kind: string) => `${domainId} ${kind}`

/** Null for a page that an earlier version has taken and this version does not. */
function readable(html: string): PageTemplate | null {
  try {
    return PageTemplate.parse(html)
  } catch (error) {
    if (error instanceof PageProblem) return null
    throw error
  }
}
