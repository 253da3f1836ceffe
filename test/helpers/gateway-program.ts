import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { Program } from './program.ts'
import { type PublicResponse, publicRequest } from './public-request.ts'
import type { GatewayReady } from './site.ts'

export interface ManagementAnswer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was answered.
  readonly body: any
}

/** `device-agent gateway` in a process of its own, as its owner and its visitors meet it. */
export class GatewayProgram {
  readonly program: Program
  readonly ready: GatewayReady
  readonly apiKey: string
  readonly ca: string

  private constructor(program: Program, ready: GatewayReady) {
    this.program = program
    this.ready = ready
    this.apiKey = readFileSync(ready.api_key_file, 'utf8').trim()
    this.ca = readFileSync(ready.ca_cert, 'utf8')
  }

  /** Ends with the running test. */
  static async start(
    folder: string,
    env: Readonly<Record<string, string>> = {},
  ): Promise<GatewayProgram> {
    const program = new Program({
      args: ['gateway', '--json'],
      cwd: folder,
      env: { GATEWAY_DATA_DIR: join(folder, 'gateway'), LOG_LEVEL: 'warn', ...env },
    })
    onTestFinished(() => program.end().then(() => undefined))
    return new GatewayProgram(program, await program.ready<GatewayReady>())
  }

  /** A call to the management API. */
  async manage(method: string, path: string, body?: object): Promise<ManagementAnswer> {
    const response = await fetch(`${this.ready.management_api}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${this.apiKey}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
  }

  visit(host: string, path = '/'): Promise<PublicResponse> {
    return publicRequest({ ingress: this.ready.ingress_http, host, path })
  }
}

/** `device-agent run` in a process of its own that ends with the running test. */
export async function startRun(
  folder: string,
  env: Readonly<Record<string, string>>,
): Promise<{ readonly agentApi: string }> {
  const program = new Program({
    args: ['run', '--json'],
    cwd: folder,
    env: { AGENT_DATA_DIR: join(folder, 'agent'), LOG_LEVEL: 'warn', ...env },
  })
  onTestFinished(() => program.end().then(() => undefined))
  const ready = await program.ready<{ agent_api: string }>()
  return { agentApi: ready.agent_api }
}
