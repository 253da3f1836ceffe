import * as z from 'zod'
import type { Viewer } from '../caller.ts'

/** What nodes ask each other of what lives in the memory of one of them. */
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
export const PageSchema = z.object({
  views: ViewSchema.array(),
  next_before: z.string().nullable(),
})
export const FoundSchema = z.object({ view: ViewSchema.nullable() })
export const ActedSchema = z.object({ is_found: z.boolean() })

/** Whose things are asked for. */
export type Wire = { owner_id: string | null; is_owner_only: boolean }

export const wireOf = ({ ownerId, isOwnerOnly }: Viewer): Wire => ({
  owner_id: ownerId,
  is_owner_only: isOwnerOnly,
})
export const viewerOf = ({ owner_id: ownerId, is_owner_only: isOwnerOnly }: Wire): Viewer => ({
  ownerId,
  isOwnerOnly,
})
