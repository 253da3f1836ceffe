import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { MAIN, Program } from '../helpers/program.ts'
import { type PageCommand, textsOf } from './commands.ts'
import { ENDLESS, type PageRule } from './rules.ts'

/** Ports of the pages at every address, and addresses of the network of the device. */
const LISTENERS: readonly (readonly [port: number, host: string])[] = [
  ...[22, 4843, 8001, 8002, 8123, 8883, 50_051].map((port) => [port, '0.0.0.0'] as const),
  [80, '192.168.1.20'],
  [443, '192.168.1.21'],
]
const ANSWER = 'HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\nok\n'
/** `name=value`, which later commands of the page use. */
const ASSIGNMENT = /^\w+=("[^"]*"|\S+)$|^[a-z]+\(\) \{/
const ENDLESS_MS = 4_000
const COMMAND_MS = 90_000

export interface Outcome {
  readonly code: number | null
  readonly output: string
}

/** Services at the ports and addresses of the pages. */
export async function startServices(): Promise<Server[]> {
  return Promise.all(
    LISTENERS.map(async ([port, host]) => {
      const server = createServer((socket) => {
        socket.on('error', () => {}).once('data', () => socket.end(ANSWER))
      })
      server.listen(port, host)
      await once(server, 'listening')
      return server
    }),
  )
}

/** An agent, a gateway and the sample service in a folder of their own, at the ports of the pages. */
export class PageSite {
  readonly #folder: string
  readonly #program: Program
  readonly #rule: PageRule
  /** Variables that the page has set. */
  #variables = ''

  private constructor(folder: string, program: Program, rule: PageRule) {
    this.#folder = folder
    this.#program = program
    this.#rule = rule
  }

  static async start(page: string, rule: PageRule): Promise<PageSite> {
    const folder = mkdtempSync(join(tmpdir(), 'device-agent-page-'))
    const bin = join(folder, 'bin')
    mkdirSync(bin)
    for (const [name, line] of [
      ['sudo', 'exec "$@"'],
      ['device-agent', `exec ${process.execPath} ${MAIN} "$@"`],
    ] as const) {
      writeFileSync(join(bin, name), `#!/bin/sh\n${line}\n`)
      chmodSync(join(bin, name), 0o755)
    }
    mkdirSync(join(folder, 'dist'))
    writeFileSync(join(folder, 'dist/main.js'), `import ${JSON.stringify(MAIN)}\n`)
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
    for (const [name, [language, index]] of Object.entries(rule.files ?? {})) {
      writeFileSync(join(folder, name), textsOf(page, language)[index] ?? '')
    }
    const program = new Program({
      args: ['up'],
      cwd: folder,
      env: {
        ...DEFAULT_PORTS,
        ...(rule.domain ? exampleSettings(rule.domain) : {}),
        ...rule.settings,
      },
    })
    const site = new PageSite(folder, program, rule)
    try {
      await site.#started()
      if (rule.before) await site.#prepare(rule.before)
      return site
    } catch (error) {
      await site.stop()
      throw error
    }
  }

  /** Runs a command of the page, with the values of its placeholders. */
  async run({ text }: PageCommand): Promise<Outcome> {
    let command = text
    for (const [placeholder, source] of Object.entries(this.#rule.values ?? {})) {
      if (!command.includes(placeholder)) continue
      command = command.replaceAll(placeholder, (await this.#prepare(source)).trim())
    }
    for (const [pattern, earlier] of this.#rule.between ?? []) {
      if (pattern.test(text)) await this.#prepare(earlier)
    }
    const outcome = await this.#bash(command)
    if (ASSIGNMENT.test(text))
      this.#variables += `${text}
`
    return outcome
  }

  async stop(): Promise<void> {
    await this.#program.end('SIGTERM')
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #started(): Promise<void> {
    const { stdout } = this.#program.child
    const ended = this.#program.ended.then(({ stderr }): never => {
      throw new Error(`up ended: ${stderr}`)
    })
    ended.catch(() => {})
    if (stdout) await Promise.race([once(stdout, 'data'), ended])
    stdout?.resume()
  }

  async #prepare(command: string): Promise<string> {
    const { code, output } = await this.#bash(command)
    if (code !== 0) throw new Error(`${command}: ${output}`)
    return output
  }

  async #bash(command: string): Promise<Outcome> {
    const isEndless = ENDLESS.test(command)
    const child = spawn('bash', ['-c', `${this.#variables}${command}`], {
      cwd: this.#folder,
      env: {
        PATH: `${join(this.#folder, 'bin')}:${process.env.PATH}`,
        HOME: this.#folder,
        LANG: 'C.UTF-8',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text
      })
    }
    let isLate = false
    const timer = setTimeout(
      () => {
        isLate = true
        if (child.pid) process.kill(-child.pid, 'SIGKILL')
      },
      isEndless ? ENDLESS_MS : COMMAND_MS,
    )
    const [code] = await once(child, 'close')
    clearTimeout(timer)
    if (!isLate) return { code, output }
    return isEndless && output !== ''
      ? { code: 0, output }
      : { code: null, output: `no end within the time. ${output}` }
  }
}

const DEFAULT_PORTS = {
  AGENT_LISTEN: '127.0.0.1:7040',
  GATEWAY_AGENT_LISTEN: '127.0.0.1:4443',
  GATEWAY_HTTP_LISTEN: '127.0.0.1:8080',
  GATEWAY_HTTPS_LISTEN: '127.0.0.1:8443',
  GATEWAY_API_LISTEN: '127.0.0.1:8070',
}

const exampleSettings = (domain: string) => ({
  // The pages have a service of the device at 8080.
  GATEWAY_HTTP_LISTEN: '127.0.0.1:8081',
  GATEWAY_RESERVED_DOMAIN: domain,
  AGENT_DOMAIN: domain.replace('*', 'cam01'),
  AGENT_FORWARD_ALLOW: '192.168.1.20:80, 192.168.1.21',
  GATEWAY_TCP_LISTEN: '0.0.0.0:20000-20100',
  GATEWAY_PUBLIC_NAMES: 'gateway.example.com, gateway.lan',
})
