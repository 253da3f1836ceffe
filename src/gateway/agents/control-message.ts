import * as z from 'zod'
import { Secret } from '../../base/secret.ts'
import type { Endpoint } from '../endpoints/endpoint.ts'
import type { EndpointProtocol } from '../records/endpoint-protocol.ts'
import { ServiceError } from '../records/service-error.ts'

/** Protocol numbers of endpoints in the SDK. */
const EDGE_TYPES: Readonly<Record<EndpointProtocol, string>> = {
  tcp: '1',
  tls: '2',
  http: '3',
  https: '3',
}
const LENGTH_BYTES = 8

/** Encodes the header of a proxy stream, after its type: an int64 (little-endian) length, then JSON. */
export function encodeProxyHeader(
  { id, protocol }: Pick<Endpoint, 'id' | 'protocol'>,
  clientAddr: string,
): Buffer {
  const json = JSON.stringify({
    Id: id,
    ClientAddr: clientAddr,
    Proto: protocol,
    EdgeType: EDGE_TYPES[protocol],
    PassthroughTLS: false,
  })
  const header = Buffer.allocUnsafe(LENGTH_BYTES + Buffer.byteLength(json))
  header.writeBigInt64LE(BigInt(header.length - LENGTH_BYTES))
  header.write(json, LENGTH_BYTES)
  return header
}

/** Type of a stream, in its first four bytes. */
export const StreamType = {
  auth: 0,
  bind: 1,
  unbind: 2,
  proxy: 3,
  restart: 4,
  stop: 5,
  update: 6,
  bindLabeled: 7,
  serviceInfo: 8,
  stopTunnel: 9,
  patchTunnel: 10,
} as const

/** Supported versions of the control protocol, best first. Version 2 is for old agents. */
export const PROTOCOL_VERSIONS: readonly string[] = ['3', '2']
/** Enough for every message except a bind. */
export const MAX_MESSAGE_BYTES = 16_384
/** A bind contains a traffic policy. One stream window holds the whole message. */
export const MAX_BIND_BYTES = 262_144

const MAX_NAME = 1_024
const MAX_LEGS = 100
/** Agents send null, an empty string or nothing for unset fields. */
const text = (maxLength: number) =>
  z
    .string()
    .max(maxLength)
    .nullish()
    .transform((value) => value ?? '')
const name = text(MAX_NAME)
const nanoseconds = z.number().nonnegative().nullish()

// SDK versions send different additional fields. Unknown keys are ignored.
const AuthRequest = z.object({
  Version: z.array(z.string().max(32)).max(16),
  ClientId: name,
  Extra: z
    .object({
      AuthToken: name,
      /** Spelling of agents of version 2. */
      Authtoken: name,
      OS: name,
      Arch: name,
      Version: name,
      Hostname: name,
      UserAgent: name,
      ClientType: name,
      // Loose limit here: too long metadata is refused later with its own code.
      Metadata: text(MAX_MESSAGE_BYTES),
      LegNumber: z.number().int().min(0).max(MAX_LEGS).nullish(),
      HeartbeatInterval: nanoseconds,
      HeartbeatTolerance: nanoseconds,
      RestartUnsupportedError: name,
      StopUnsupportedError: name,
      UpdateUnsupportedError: name,
    })
    .transform(({ AuthToken, Authtoken, ...extra }) => ({
      ...extra,
      AuthToken: new Secret(AuthToken || Authtoken),
    })),
})
export type AuthRequest = z.infer<typeof AuthRequest>

const BindOptions = z.looseObject({
  Domain: name,
  Hostname: name,
  Subdomain: name,
  Addr: name,
  /** Used by clients of version 3 instead of the four fields above. */
  URL: name,
  TrafficPolicy: text(MAX_BIND_BYTES),
})

const BindRequest = z.looseObject({
  Id: name,
  /** Empty: the scheme of the URL. */
  Proto: text(32),
  ForwardsTo: name,
  /** Protocol of the upstream; empty if not set. */
  ForwardsProto: text(32),
  Opts: BindOptions.nullish().transform((options) => options ?? BindOptions.parse({})),
  Extra: z
    .looseObject({
      /** Token from the answer to an earlier bind of the same tunnel. */
      Token: name,
      Metadata: text(MAX_MESSAGE_BYTES),
      Name: text(MAX_MESSAGE_BYTES),
      Description: text(MAX_MESSAGE_BYTES),
      Bindings: z.array(z.string().max(64)).nullish(),
    })
    .nullish(),
})
export type BindRequest = z.infer<typeof BindRequest>

const change = (maxLength: number) => z.string().max(maxLength).nullish()
const PatchRequest = z
  .strictObject({
    /** `tn_…`, as in the answer to the bind. */
    TunnelId: z.string().max(MAX_NAME),
    Name: change(MAX_MESSAGE_BYTES),
    Description: change(MAX_MESSAGE_BYTES),
    Metadata: change(MAX_MESSAGE_BYTES),
    PoolingEnabled: z.boolean().nullish(),
    TrafficPolicy: change(MAX_BIND_BYTES),
  })
  .transform((asked) => ({
    TunnelId: asked.TunnelId,
    Name: asked.Name ?? undefined,
    Description: asked.Description ?? undefined,
    Metadata: asked.Metadata ?? undefined,
    PoolingEnabled: asked.PoolingEnabled ?? undefined,
    TrafficPolicy: asked.TrafficPolicy ?? undefined,
  }))
/** Changes to an endpoint. Undefined fields stay the same. */
export type PatchRequest = z.infer<typeof PatchRequest>

const UnbindRequest = z.object({ Id: z.string().max(MAX_NAME) })
const CommandAnswer = z.object({ Error: name.optional(), error: name.optional() })

/** Throws ServiceError 801 if the payload is invalid. */
export const parseAuth = (message: unknown) => parse(AuthRequest, message, 801)
/** Throws ServiceError 301. */
export const parseBind = (message: unknown) => parse(BindRequest, message, 301)
/** Throws ServiceError 301. */
export const parsePatch = (message: unknown) => parse(PatchRequest, message, 301)
/** Throws ServiceError 801. */
export const parseUnbind = (message: unknown) => parse(UnbindRequest, message, 801)

/**
 * Returns the options of a bind exactly as the agent sent them. The SDK binds again with the options of the
 * answer, so a missing option would be lost after a reconnect. They may contain secrets.
 */
export const sentOptions = (bind: unknown): object =>
  (bind as { readonly Opts?: object | null }).Opts ?? {}

/** Reason why the agent did not obey a command; empty if it did. */
export function commandError(message: unknown): string {
  const answer = parse(CommandAnswer, message, 801)
  return answer.error || answer.Error || ''
}

/** Answer to a refused RPC. The code is on its own line. */
export function refusal(error: ServiceError): { Error: string } {
  return { Error: `${error.message}\n\n${error.errorCode}\n` }
}

function parse<T extends z.ZodType>(schema: T, message: unknown, code: number): z.output<T> {
  const parsed = schema.safeParse(message)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new ServiceError(
    code,
    `The message is not valid: ${issue?.path.join('.')}: ${issue?.message}.`,
  )
}
