import * as z from 'zod'

/** The ports that visitors come to: the same on all nodes, or URLs would depend on the way in. */
export const PublicPortsSchema = z.strictObject({
  http: z.number().int().min(1).max(65_535),
  https: z.number().int().min(1).max(65_535),
})
export type PublicPorts = z.infer<typeof PublicPortsSchema>
