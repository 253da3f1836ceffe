import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { NewTokenView, TokenView } from '../../api/token-view.ts'
import { StartError } from '../../base/app-error.ts'
import { abortedAfter } from '../../base/deadline.ts'
import type { Config } from '../../config.ts'
import { localAddress } from '../local-address.ts'

const TIMEOUT_MS = 15_000
/** RFC 9457, as far as it is shown. */
const Problem = z.object({
  detail: z.string(),
  errors: z.array(z.object({ pointer: z.string(), detail: z.string() })).default([]),
})

/** The tokens of an agent that runs, through its API and with the owner's token. */
export class ApiTokenDesk {
  readonly #config: Config['agent']
  readonly #stop: AbortSignal

  constructor(config: Config['agent'], stop: AbortSignal) {
    this.#config = config
    this.#stop = stop
  }

  list(): Promise<TokenView[]> {
    return this.#send('GET', '/tokens', z.array(TokenView))
  }

  create(body: object): Promise<NewTokenView> {
    return this.#send('POST', '/tokens', NewTokenView, body)
  }

  rotate(name: string, body: object): Promise<NewTokenView> {
    return this.#send('POST', `/tokens/${encodeURIComponent(name)}/rotate`, NewTokenView, body)
  }

  revoke(name: string): Promise<void> {
    const path = `/tokens/${encodeURIComponent(name)}`
    return this.#send(
      'DELETE',
      path,
      z.undefined().transform(() => undefined),
    )
  }

  async #send<T>(method: string, path: string, schema: z.ZodType<T>, body?: object): Promise<T> {
    const { listen } = this.#config
    const origin = `http://${localAddress(listen)}`
    const advice = 'set AGENT_LISTEN and the other settings as the agent has them'
    if (listen.port === 0) {
      throw new StartError(`The agent runs, but nobody knows at which port: ${advice}.`)
    }
    const request: RequestInit = {
      method,
      headers: {
        authorization: `Bearer ${this.#ownerToken()}`,
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
      redirect: 'error',
    }
    try {
      return await abortedAfter(TIMEOUT_MS, this.#stop, async (signal) => {
        const response = await fetch(`${origin}${path}`, { ...request, signal })
        const text = await response.text()
        const answer = text === '' ? undefined : JSON.parse(text)
        if (!response.ok) throw refusalOf(response.status, Problem.parse(answer))
        return schema.parse(answer)
      })
    } catch (error) {
      if (error instanceof StartError) throw error
      if (this.#stop.aborted) throw new StartError('Stopped before it was done.')
      throw new StartError(
        `The agent runs, but its API is not what answers at ${origin}: ${advice}.`,
        {
          cause: error,
        },
      )
    }
  }

  #ownerToken(): string {
    const { apiToken, dataDir } = this.#config
    if (apiToken) return apiToken.reveal()
    const path = join(dataDir, 'api-token')
    try {
      return readFileSync(path, 'utf8').trim()
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      throw new StartError(
        `The agent runs, and the token of its API in ${path} cannot be read (${code}): set AGENT_API_TOKEN as the agent has it, or restart the agent, which then makes a file that is missing.`,
        { cause: error },
      )
    }
  }
}

function refusalOf(status: number, { detail, errors }: z.infer<typeof Problem>): StartError {
  if (status === 401) {
    return new StartError(
      `The agent does not take this token: ${detail} Set AGENT_API_TOKEN as the agent has it, or restart the agent.`,
    )
  }
  const fields = errors.map((one) => `${one.pointer.slice(1)} ${one.detail}`)
  return new StartError(fields.length === 0 ? detail : `${fields.join('; ')}.`)
}
