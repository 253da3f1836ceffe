import type {
  Connector,
  ConnectRequest,
  EndpointRequest,
  Listener,
  ServiceCommand,
  Session,
} from '../../src/agent/connector.ts'
import { networkProblem, type Problem, ProblemError } from '../../src/agent/problem.ts'
import { serviceProblem } from '../../src/agent/service-error.ts'
import { createDeferred } from '../../src/base/deferred.ts'

/** A refusal by the service, as the connector throws it. */
export function refusal(code: number, detail = 'refused'): ProblemError {
  return new ProblemError(serviceProblem(detail, `ERR_NGROK_${code}`))
}

/** A service that does what the test says. Each hook may throw, wait, or answer. */
export class FakeConnector implements Connector {
  readonly sdkVersion = 'fake'
  readonly sessions: FakeSession[] = []
  /** Before a session is handed out. */
  onConnect: (request: ConnectRequest) => void | Promise<void> = () => {}
  /** Before an endpoint is open. */
  onOpen: (request: EndpointRequest) => void | Promise<void> = () => {}
  /** Before an endpoint is closed. */
  onClose: (domain: string) => void | Promise<void> = () => {}
  /** Answers whether the service knows what that is. */
  onDrain: (withinMs: number) => boolean | Promise<boolean> = () => true
  /** Answers with the traffic of a session. */
  onTraffic: Session['traffic'] = async () => undefined
  /** What happened, in order: `open a.test`, `close a.test`, `close session`. */
  readonly journal: string[] = []
  connects = 0
  /** What a TCP endpoint gets that asks for no address, and another one that asks for no name. */
  address = '127.0.0.1:20001'
  name = 'amber-falcon.site.test'

  async connect(request: ConnectRequest): Promise<Session> {
    this.connects += 1
    await this.onConnect(request)
    const session = new FakeSession(this, request)
    this.sessions.push(session)
    return session
  }

  get last(): FakeSession {
    const session = this.sessions.at(-1)
    if (!session) throw new Error('nobody has connected')
    return session
  }

  /** Domains that are open on sessions that are not closed. */
  get online(): string[] {
    return this.sessions.flatMap((session) => [...session.endpoints.keys()])
  }
}

export class FakeSession implements Session {
  readonly request: ConnectRequest
  readonly endpoints = new Map<string, EndpointRequest>()
  readonly #connector: FakeConnector
  isClosed = false
  isLost = false
  /** How often it was said that all is open. */
  completed = 0

  constructor(connector: FakeConnector, request: ConnectRequest) {
    this.#connector = connector
    this.request = request
  }

  get isAlive(): boolean {
    return !this.isClosed && !this.isLost
  }

  async open(request: EndpointRequest): Promise<Listener> {
    const { protocol } = request
    const { address, name } = this.#connector
    const domain = request.domain || (protocol === 'tcp' ? address : name)
    await this.#connector.onOpen(request)
    if (!this.isAlive) throw new ProblemError(networkProblem('the session is gone'))
    this.#connector.journal.push(`open ${domain}`)
    this.endpoints.set(domain, request)
    let isOpen = true
    const close = async () => {
      await this.#connector.onClose(domain)
      if (isOpen && this.isAlive) this.#connector.journal.push(`close ${domain}`)
      isOpen = false
      // The name may belong to another endpoint by now.
      if (this.endpoints.get(domain) === request) this.endpoints.delete(domain)
    }
    return { url: protocol === 'tcp' ? `tcp://${domain}` : `https://${domain}:8443`, close }
  }

  async drain(withinMs: number): Promise<boolean> {
    this.#connector.journal.push(`drain ${withinMs}`)
    return this.#connector.onDrain(withinMs)
  }

  async complete(): Promise<void> {
    this.completed += 1
  }

  traffic(): ReturnType<Session['traffic']> {
    return this.#connector.onTraffic()
  }

  retire(): void {}

  async close(): Promise<void> {
    this.isClosed = true
    this.endpoints.clear()
    this.#connector.journal.push('close session')
  }

  /** The link breaks. */
  lose(detail = 'the connection to the service broke'): void {
    this.isLost = true
    this.endpoints.clear()
    this.request.onLost(networkProblem(detail))
  }

  /** The service asks for something, and was told that it is obeyed. */
  command(command: ServiceCommand): void {
    this.request.onCommand(command)
  }

  /** The service closes one endpoint. */
  drop(domain: string, problem: Problem): void {
    const request = this.endpoints.get(domain)
    this.endpoints.delete(domain)
    request?.onDropped(problem)
  }
}

/** A hook that waits until the test lets it go on. */
export function gate(): {
  readonly wait: () => Promise<void>
  readonly open: () => void
} {
  const { promise, resolve } = createDeferred()
  return { wait: () => promise, open: () => resolve() }
}
