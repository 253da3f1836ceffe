import * as z from 'zod'

/** ALPN protocol of a device that joins, on the port for agents. */
export const JOIN_PROTOCOL = 'device-agent-join'

/** Version of the messages. A peer refuses other versions. */
export const JOIN_VERSION = 1

/** Largest message of a device, and of a gateway, in bytes. */
export const MAX_CLAIM_BYTES = 4_096
export const MAX_ANSWER_BYTES = 65_536

/**
 * Reasons of a gateway for refusing a device. `elsewhere`: another address, or the same one later, may
 * accept it. `final`: the invitation itself cannot be used.
 */
export const JOIN_REFUSALS = {
  /** Also for a wrong secret: both give the same answer. */
  'not-found': 'final',
  expired: 'final',
  used: 'final',
  withdrawn: 'final',
  /** A device with the host name has joined, or the host name is no device name. */
  'name-refused': 'final',
  /** The account may not have the domain, or has reached a quota. */
  'not-allowed': 'final',
  'invalid-request': 'final',
  'newer-device': 'final',
  'too-many-failures': 'elsewhere',
  'not-ready': 'elsewhere',
} as const satisfies Record<string, 'final' | 'elsewhere'>

export type JoinRefusal = keyof typeof JOIN_REFUSALS

/** Text for a terminal: no control characters, and none that reorder, hide or break its lines. */
const text = (max: number) =>
  z
    .string()
    .max(max)
    .regex(/^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]*$/u)
const version = z.literal(JOIN_VERSION)
const MAX_ITEMS = 64

/** Tells the version of a message before the message is parsed. */
export const VersionOf = z.object({ v: z.int().positive() })

/** First message of the gateway. It is not secret. */
export const Hello = z.object({
  v: version,
  /** CA certificate, PEM. */
  ca: z.string().max(16_384),
  /** Time of the gateway, in milliseconds since the epoch. */
  now: z.int().nonnegative(),
})

/** Message of the device, sent only after it has checked the gateway. Fields of later versions are ignored. */
export const Claim = z.object({
  v: version,
  id: z.string().regex(/^[0-9a-f]{16}$/),
  secret: z.string().regex(/^[\w-]{22}$/),
  /** Random text of the device, which stays the same when it repeats the request. */
  claim: z.string().regex(/^[\w-]{22,64}$/),
  hostname: text(255),
  /** Authtoken of an earlier join at this gateway. Its hash would be no proof: the gateway's backups have it. */
  earlier: text(255).optional(),
  /** Version of device-agent on the device. */
  version: text(64).optional(),
})

/** Last message of the gateway if it lets the device in. */
export const Welcome = z.object({
  v: version,
  /** Name of the device at the gateway. */
  name: text(255),
  authtoken: text(255).min(1),
  /** Wildcard or name that the device may bind. Unset: what its authtoken allows. */
  domain: text(255).optional(),
  /** Value for AGENT_DOMAIN. */
  agent_domain: text(255).optional(),
  /** URL of the device with that domain, with the port of visitors. */
  agent_url: text(512).optional(),
  tags: z.array(text(255)).max(MAX_ITEMS),
  /** Addresses for agents, the best first. */
  server_addrs: z.array(text(300)).max(MAX_ITEMS),
})

/** Last message of the gateway if it does not. */
export const Refusal = z.object({
  v: version,
  /** A code of `JOIN_REFUSALS`. */
  error: text(64),
  /** One sentence for people. */
  message: text(1_000),
})

export type Hello = z.infer<typeof Hello>
export type Claim = z.infer<typeof Claim>
export type Welcome = z.infer<typeof Welcome>
export type Refusal = z.infer<typeof Refusal>
