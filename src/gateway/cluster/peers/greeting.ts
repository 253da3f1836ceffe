import * as z from 'zod'

/** The ports that visitors come to: the same on all nodes, or URLs would depend on the way in. */
const PublicPortsSchema = z.strictObject({
  http: z.number().int().min(1).max(65_535),
  https: z.number().int().min(1).max(65_535),
})
export type PublicPorts = z.infer<typeof PublicPortsSchema>

/** Oldest and newest version of the link protocol that this node supports. */
export const SPOKEN = { oldest: 1, newest: 1 } as const

const versions = z.strictObject({
  oldest: z.number().int().min(1).max(65_535),
  newest: z.number().int().min(1).max(65_535),
})

/** First message of a link, from the node that opened it. */
export const GreetingSchema = z.strictObject({ versions, ports: PublicPortsSchema })
export type Greeting = z.infer<typeof GreetingSchema>

/** Reasons and remedies of refused links. */
export const LINK_REFUSALS = {
  version: 'The versions of the two nodes are not compatible. Install the same release on both.',
  ports: 'The public ports of the two nodes differ. Set the same ports on all nodes.',
  stranger: 'The node was removed from the cluster. Join it again with a new token.',
} as const
export type LinkRefusal = keyof typeof LINK_REFUSALS

export const WelcomeSchema = z.union([
  z.strictObject({ version: z.number().int().min(1).max(65_535) }),
  z.strictObject({ refusal: z.enum(Object.keys(LINK_REFUSALS) as LinkRefusal[]) }),
])
export type Welcome = z.infer<typeof WelcomeSchema>

/** The newest version that both speak. */
export function agree(own: Greeting, theirs: Greeting): Welcome {
  const version = Math.min(own.versions.newest, theirs.versions.newest)
  if (version < Math.max(own.versions.oldest, theirs.versions.oldest)) return { refusal: 'version' }
  const { http, https } = own.ports
  return theirs.ports.http === http && theirs.ports.https === https
    ? { version }
    : { refusal: 'ports' }
}
