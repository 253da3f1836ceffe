import * as z from 'zod'
import { StartError } from '../base/app-error.ts'
import type { ReadAnswer } from '../base/net/node-http.ts'

export interface AgentRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE'
  readonly path: string
  /** Sent as JSON. */
  readonly body?: object | undefined
  readonly headers?: Readonly<Record<string, string>>
}

/** A problem of the agent API (RFC 9457). Other fields are ignored: an agent may be newer. */
const ProblemSchema = z.object({
  code: z.string(),
  detail: z.string(),
  errors: z.array(z.object({ pointer: z.string(), detail: z.string() })).default([]),
})
export type Problem = z.output<typeof ProblemSchema>

/** The agent refused a request. */
export class AgentRefusal extends StartError {
  readonly problem: Problem

  constructor(text: string, problem: Problem) {
    super(text)
    this.problem = problem
  }
}

/** The errors of a problem, each sentence once: the first is often the detail. */
export function errorLines({ detail, errors }: Problem): string[] {
  return errors.map(({ pointer, detail: text }) => {
    // A field of a tunnel is its name. Deeper places are those of the document.
    const place = pointer.replace(/^\/(?=[^/]*$)/, '')
    return detail.includes(text) ? `at ${place}` : `${place}: ${text}`
  })
}

export interface AgentResponse {
  readonly status: number
  readonly headers: ReadAnswer['response']['headers']
  /** Parsed JSON; undefined if it is no JSON. */
  readonly value: unknown
  readonly problem: Problem | undefined
}

export interface TransportRequest {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly content: string | undefined
}

/** A connection to an agent, with its error messages. */
export interface Transport {
  /** Sends a request with authentication, and reads the response within bounds of time and size. */
  exchange(request: TransportRequest): Promise<ReadAnswer>
  /** There was no complete response. */
  failure(error: NodeJS.ErrnoException): Error
  /** The response has another status than 2xx. */
  refusal(response: AgentResponse): Error
  /** The response has another format than this version knows. */
  readonly unknownFormat: string
}

/** A client of the agent API. Its errors come from the transport. */
export class AgentClient {
  readonly #transport: Transport

  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** The body of a 2xx response. */
  async ask<T>(request: AgentRequest, schema: z.ZodType<T>): Promise<T> {
    return this.read(await this.send(request), schema)
  }

  /** The body of a response that is there, if its status is 2xx. */
  read<T>(response: AgentResponse, schema: z.ZodType<T>): T {
    const { status, value } = response
    if (status < 200 || status >= 300) throw this.#transport.refusal(response)
    const parsed = parseKnown(schema, value)
    if (parsed.success) return parsed.data
    throw new StartError(this.#transport.unknownFormat)
  }

  /** Returns the response with any status. */
  async send(request: AgentRequest): Promise<AgentResponse> {
    const { method = 'GET', path, body, headers = {} } = request
    const content = body === undefined ? undefined : JSON.stringify(body)
    const contentType = content !== undefined && { 'content-type': 'application/json' }
    try {
      const sent = { method, path, headers: { ...contentType, ...headers }, content }
      return toResponse(await this.#transport.exchange(sent))
    } catch (error) {
      throw this.#transport.failure(error as NodeJS.ErrnoException)
    }
  }
}

function toResponse({ response: { statusCode = 0, headers }, text }: ReadAnswer): AgentResponse {
  let value: unknown
  try {
    value = text === '' ? undefined : JSON.parse(text)
  } catch {}
  return { status: statusCode, headers, value, problem: ProblemSchema.safeParse(value).data }
}

/** Fields that a strict schema does not know are left out: an agent may be newer. */
function parseKnown<T>(schema: z.ZodType<T>, value: unknown): z.ZodSafeParseResult<T> {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed
  const known = structuredClone(value)
  for (const issue of parsed.error.issues) {
    if (issue.code !== 'unrecognized_keys') return parsed
    const object = issue.path.reduce(memberOf, known)
    for (const key of issue.keys) Reflect.deleteProperty(object as object, key)
  }
  return schema.safeParse(known)
}

function memberOf(value: unknown, key: PropertyKey): unknown {
  return (value as Record<PropertyKey, unknown>)[key]
}
