import type { Connector, ConnectRequest, ServiceCommand, Session } from '../connector.ts'
import type { Problem } from '../problem.ts'

/** What the session is opened with: the same asked for later gets that session. */
export type AheadRequest = Pick<ConnectRequest, 'authtoken' | 'serverAddr' | 'caCert' | 'metadata'>

/** A session that nobody has asked for yet, and what was told of it so far. */
interface Ahead {
  readonly asked: AheadRequest
  readonly session: Session
  readonly missed: ((request: ConnectRequest) => void)[]
  owner: ConnectRequest | undefined
}

/**
 * A connector that connects once before there is an agent: a process that takes the place of another
 * one shows that it can, and only then lets that one hand anything over.
 */
export class HeadStart implements Connector {
  readonly #connector: Connector
  #ahead: Ahead | undefined

  constructor(connector: Connector) {
    this.#connector = connector
  }

  get sdkVersion(): string {
    return this.#connector.sdkVersion
  }

  /** Tries the addresses in their order. Throws what the last one said. */
  async run(addresses: readonly (string | undefined)[], asked: Omit<AheadRequest, 'serverAddr'>) {
    let failure: unknown = new Error('there is no address to connect to')
    for (const serverAddr of addresses) {
      try {
        this.#ahead = await this.#open({ ...asked, serverAddr })
        return
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }

  /** The session that was connected ahead, where it is what is asked for; else another one. */
  async connect(request: ConnectRequest): Promise<Session> {
    const ahead = this.#ahead
    if (!ahead?.session.isAlive || !isSame(ahead.asked, request)) {
      return this.#connector.connect(request)
    }
    this.#ahead = undefined
    ahead.owner = request
    // Whoever asks has no session yet, and may be told of it all the same.
    for (const tell of ahead.missed) tell(request)
    return ahead.session
  }

  /** Closes the session that nobody has asked for. */
  async stop(): Promise<void> {
    const ahead = this.#ahead
    this.#ahead = undefined
    await ahead?.session.close()
  }

  async #open(asked: AheadRequest): Promise<Ahead> {
    const missed: Ahead['missed'] = []
    let ahead: Ahead | undefined
    const tell = (it: (request: ConnectRequest) => void) => {
      if (ahead?.owner) it(ahead.owner)
      else missed.push(it)
    }
    const session = await this.#connector.connect({
      ...asked,
      onLost: (problem: Problem) => tell((it) => it.onLost(problem)),
      onHeartbeat: (latencyMs) => tell((it) => it.onHeartbeat(latencyMs)),
      onCommand: (command: ServiceCommand) => tell((it) => it.onCommand(command)),
      onDuplicate: (ip) => tell((it) => it.onDuplicate(ip)),
      onNotice: (text) => tell((it) => it.onNotice?.(text)),
    })
    ahead = { asked, session, missed, owner: undefined }
    return ahead
  }
}

function isSame(asked: AheadRequest, request: AheadRequest): boolean {
  return (
    asked.authtoken.reveal() === request.authtoken.reveal() &&
    asked.serverAddr === request.serverAddr &&
    asked.caCert === request.caCert &&
    asked.metadata === request.metadata
  )
}
