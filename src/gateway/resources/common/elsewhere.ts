import * as z from 'zod'
import { NoAnswerError, type OtherGateways } from '../../ports/other-gateways.ts'
import { ResourceNotFoundError, ServiceError } from '../../records/service-error.ts'
import type { Viewer } from './caller.ts'
import type { Elsewhere, MissingNode } from './resource-lists.ts'

/** Calls between nodes for data in the memory of one node. */
export const [LIST, ONE, ACT] = ['list', 'one', 'act'] as const

const viewer = { owner_id: z.string().nullable(), is_owner_only: z.boolean() }
const path = z.string().max(64)
export const ListSchema = z.strictObject({
  ...{ path, base_url: z.string(), ...viewer },
  limit: z.int().min(1).max(100),
  before_id: z.string().optional(),
  filter: z.string().max(4_096).optional(),
})
export const OneSchema = z.strictObject({ path, id: z.string(), base_url: z.string(), ...viewer })
export const ActSchema = z.strictObject({
  path,
  id: z.string(),
  action: z.string().max(64),
  ...viewer,
})

const ViewSchema = z.looseObject({ id: z.string() })
const PageSchema = z.object({
  views: ViewSchema.array(),
  next_before: z.string().nullable(),
})
const FoundSchema = z.object({ view: ViewSchema.nullable() })
const ActedSchema = z.object({ is_found: z.boolean() })

/** The accounts that the caller can see. */
export type Wire = { owner_id: string | null; is_owner_only: boolean }

const wireOf = ({ ownerId, isOwnerOnly }: Viewer): Wire => ({
  owner_id: ownerId,
  is_owner_only: isOwnerOnly,
})
export const viewerOf = ({ owner_id: ownerId, is_owner_only: isOwnerOnly }: Wire): Viewer => ({
  ownerId,
  isOwnerOnly,
})

/** Calls all other nodes at once. Throws the ServiceError of a node that refuses. */
export async function askOthers<T>(
  gateways: OtherGateways,
  ask: string,
  of: object,
  schema: z.ZodType<T>,
): Promise<{
  readonly answers: readonly { readonly nodeId: string; readonly said: T }[]
  readonly missing: readonly MissingNode[]
}> {
  const others = gateways.all().filter(({ isSelf, serves }) => !isSelf && serves)
  const missing: MissingNode[] = []
  const answers = await Promise.all(
    others.map(async ({ id, name }) => {
      try {
        return [{ nodeId: id, said: schema.parse(await gateways.ask(id, ask, of)) }]
      } catch (error) {
        if (error instanceof ServiceError) throw error
        missing.push({ id, name })
        return []
      }
    }),
  )
  return { answers: answers.flat(), missing }
}

/** Items of a resource at the other gateways. */
export function elsewhere(others: OtherGateways, path: string): Elsewhere {
  const askAll = <T>(ask: string, of: object, schema: z.ZodType<T>) =>
    askOthers(others, ask, of, schema)
  return {
    page: async ({ limit, beforeId, filter }, { viewer, baseUrl }) => {
      const of = { path, limit, before_id: beforeId, filter, base_url: baseUrl, ...wireOf(viewer) }
      const { answers, missing } = await askAll(LIST, of, PageSchema)
      const pages = answers.map(({ said: { views, next_before } }) => {
        return { views, nextBefore: next_before ?? undefined }
      })
      return { pages, missing: shownTo(viewer, missing) }
    },
    find: async (id, { viewer, baseUrl }) => {
      const of = { path, id, base_url: baseUrl, ...wireOf(viewer) }
      const { answers, missing } = await askAll(ONE, of, FoundSchema)
      const found = answers.flatMap(({ nodeId, said: { view } }) =>
        view ? [{ nodeId, view }] : [],
      )
      return { found, missing: shownTo(viewer, missing) }
    },
    act: async (nodeId, id, action, viewer) => {
      try {
        const of = { path, id, action, ...wireOf(viewer) }
        const acted = ActedSchema.parse(await others.ask(nodeId, ACT, of))
        if (!acted.is_found) throw new ResourceNotFoundError()
      } catch (error) {
        if (!(error instanceof NoAnswerError)) throw error
        throw new ServiceError(840, 'The gateway of this agent does not answer. Try again.')
      }
    },
  }
}

/** Host names of gateways are shown only to callers that manage all of them. */
export function shownTo(
  { isOwnerOnly }: Viewer,
  missing: readonly MissingNode[],
): readonly MissingNode[] {
  return isOwnerOnly ? missing.map(({ id }) => ({ id, name: id })) : missing
}
