import * as z from 'zod'
import type { Clock } from '../../../base/clock.ts'
import type { Database } from '../../../store/database.ts'
import { ERROR_KINDS } from '../../error-pages/error-kind.ts'
import { PageProblem, PageTemplate } from '../../error-pages/page-template.ts'
import { QUOTA_CODE } from '../../records/account-quotas.ts'
import type { ReservedDomainStore } from '../../records/reserved-domain-store.ts'
import type { IdSource } from '../../records/resource-id.ts'
import { checkTexts, present, ServiceError } from '../../records/service-error.ts'
import { type Caller, refuseForeign, sees } from '../common/caller.ts'
import { itemFields, Reference, requireChange, texts, timestamp } from '../common/request.ts'
import { type Resource, withBody } from '../common/resource.ts'
import type { ErrorPage, ErrorPageStore, ListedErrorPage } from './error-page-store.ts'

const TEXT_CODES = [215, 215] as const
/** A page of 64 KiB, in which JSON may escape every character. */
const MAX_BODY_BYTES = 512 * 1_024

/** Pages of one account, and of the gateway's owner. */
const MAX_PAGES = 100

const html = z
  .string()
  .describe('page in HTML, at most 64 KiB; placeholders such as {{status}} are escaped')

const ErrorPageCreate = z.strictObject({
  ...texts,
  kind: z
    .enum(ERROR_KINDS)
    .describe('kind of error; default: all kinds without a page of their own'),
  reserved_domain_id: z.string().optional().describe('default: the whole gateway'),
  html,
})
const ErrorPageUpdate = z.strictObject({ ...texts, html: html.optional() })

const ErrorPageView = z.strictObject({
  ...itemFields,
  description: z.string(),
  metadata: z.string(),
  kind: z.enum(ERROR_KINDS),
  /** Null: the page is for the whole gateway. */
  reserved_domain: Reference.nullable(),
  /** Account of the domain; omitted if it belongs to the gateway. */
  owner_id: z.string().optional(),
  /** False if the domain belongs to another account by now. Such a page is not shown. */
  in_use: z.boolean(),
  size: z.int().describe('bytes of the page'),
  html: z.string().optional().describe('page in HTML; omitted in lists'),
})

export interface ErrorPagesDeps {
  readonly database: Pick<Database, 'change'>
  readonly errorPageStore: ErrorPageStore
  readonly domains: ReservedDomainStore
  readonly ids: IdSource
  readonly clock: Clock
}

/** Pages of accounts for visitors who get an error. */
export function errorPages({
  database,
  errorPageStore: store,
  domains,
  ids,
  clock,
}: ErrorPagesDeps): Resource<ErrorPage | ListedErrorPage> {
  const view = (page: ErrorPage | ListedErrorPage, baseUrl: string) => {
    const { id, createdAt, ownerId, domainId, kind, description, metadata } = page
    const domain = domainId === null ? undefined : domains.get(domainId)
    return {
      id,
      uri: `${baseUrl}/error_pages/${id}`,
      created_at: timestamp(createdAt),
      description,
      metadata,
      kind,
      reserved_domain:
        domainId === null ? null : { id: domainId, uri: `${baseUrl}/reserved_domains/${domainId}` },
      ...(ownerId !== null && { owner_id: ownerId }),
      in_use: domainId === null || domain?.ownerId === ownerId,
      ...('html' in page
        ? { size: Buffer.byteLength(page.html), html: page.html }
        : { size: page.size }),
    } satisfies z.infer<typeof ErrorPageView>
  }

  /** Account of a new page. Pages of the gateway are shown at names of all accounts. */
  function ownerAt(domainId: string | null, caller: Caller): string | null {
    if (domainId === null) {
      refuseForeign(caller, 'error pages without a reserved domain')
      return null
    }
    const domain = domains.get(domainId)
    if (domain && sees(caller, domain.ownerId)) return domain.ownerId
    throw new ServiceError(215, `The reserved domain ${domainId.slice(0, 64)} does not exist.`)
  }

  return {
    path: 'error_pages',
    noun: 'ErrorPage',
    about: 'Own pages for visitors who get an error.',
    collection: 'error_pages',
    prefix: 'epg',
    schema: ErrorPageView,
    maxBodyBytes: MAX_BODY_BYTES,
    page: (request) => store.list(request),
    get: (id) => store.get(id),
    view,
    ownerOf: ({ ownerId }) => ownerId,
    create: withBody({ ErrorPageCreate }, async (body, { baseUrl, caller }) => {
      const { description = '', metadata = '', kind, reserved_domain_id: domainId = null } = body
      checkTexts({ description, metadata }, TEXT_CODES)
      checkHtml(body.html)
      const fixed = { id: ids.next('epg'), kind, domainId, html: body.html, createdAt: clock.now() }
      const keep = () => {
        const page = { ...fixed, ownerId: ownerAt(domainId, caller), description, metadata }
        const other = store.at(page)
        if (other) {
          const msg = `The page ${other.id} is for the same kind and domain. Change it instead.`
          throw new ServiceError(215, msg)
        }
        if (store.countOf(page.ownerId) >= MAX_PAGES) {
          throw new ServiceError(QUOTA_CODE, `An account has at most ${MAX_PAGES} error pages.`)
        }
        store.insert(page)
        return page
      }
      return view(await database.change(keep, { concludes: fixed.id }), baseUrl)
    }),
    update: withBody({ ErrorPageUpdate }, (change, { item: { id } }) => {
      requireChange(change, 215, 'html, description or metadata')
      if (change.html !== undefined) checkHtml(change.html)
      const keep = () => {
        const page = present(store.get(id))
        const { description = page.description, metadata = page.metadata } = change
        checkTexts({ description, metadata }, TEXT_CODES)
        const updated = { ...page, html: change.html ?? page.html, description, metadata }
        store.replace(updated)
        return updated
      }
      return database.change(keep, { concludes: id })
    }),
    remove: async ({ id }) => {
      await database.change(() => store.delete(id), { concludes: id, mayUseReserve: true })
    },
  }
}

/** Throws ServiceError 215 for a page that cannot be shown. */
function checkHtml(text: string): void {
  try {
    PageTemplate.parse(text)
  } catch (error) {
    if (!(error instanceof PageProblem)) throw error
    throw new ServiceError(215, `The field html is not valid. ${error.message}`)
  }
}
