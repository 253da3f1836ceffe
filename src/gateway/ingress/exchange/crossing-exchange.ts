import type { AwayName, HeldRequest } from '../../endpoints/away-name.ts'
import type { RemoteHome } from '../../endpoints/routes.ts'
import type { StreamPool } from '../../streams/stream-pool.ts'
import type { StreamSlots } from '../../streams/stream-slots.ts'
import type { DeviceRequest } from '../common/device-request.ts'
import type { EdgeErrorCode } from '../common/edge-error.ts'
import { CertificateTooLargeError } from '../device/entry-facts.ts'
import type { PeerVerdict } from '../device/forward.ts'
import { PeerForward } from '../device/peer-forward.ts'
import { AnsweredExchange } from './answered-exchange.ts'
import type { ParkedState } from './client-exchange.ts'
import type { PolicyRun } from './policy-run.ts'

/** How a request goes to another node. */
export interface Passage {
  /** What has judged it here. */
  readonly policy: PolicyRun | undefined
  readonly streams: (link: StreamSlots) => StreamPool
  readonly request: () => DeviceRequest
  /** See `ForwardOptions`. */
  readonly isAlone: boolean
  /** See `Crossing`. */
  readonly again: () => void
}

/** An exchange that may wait for where it goes, and go to other nodes. */
export abstract class CrossingExchange extends AnsweredExchange {
  /** The node that was thought to be home, and has said that it is not. */
  #disownedBy: string | undefined

  onVerdict(verdict: PeerVerdict): void {
    const state = this.state
    if (state.name !== 'forwarding' || !('home' in state.to)) return
    if (verdict === 'closed') {
      this.closeFor('policy')
      return
    }
    const { home, again } = state.to
    this.#disownedBy = home.nodeId
    const parked = { name: 'parked', policy: state.policy, hold: undefined, goOn: again } as const
    this.become(parked)
    this.goOn(parked)
  }

  protected failOnDevice(code: EdgeErrorCode): void {
    const state = this.state
    if ('policy' in state) state.policy?.upstreamEnded(undefined)
    this.fail(code, true)
  }

  /** Waits for a name whose device is away; `goOn` is called when that may have changed. */
  protected park(away: AwayName, policy: PolicyRun | undefined, goOn: () => void): void {
    const request: HeldRequest = {
      network: this.client.network,
      bytes: this.request.memoryBytes,
      onNameChange: () => this.client.guard(() => this.goOn(parked)),
    }
    const parked: ParkedState = { name: 'parked', policy, hold: { away, request }, goOn }
    if (this.context.routes.wait(away, request)) this.become(parked)
    else this.failOnDevice('ERR_GATEWAY_AWAY')
  }

  /** Sends a request to another node; it waits while that cannot be reached, or is not its home. */
  protected cross(home: RemoteHome, { policy, streams, request, isAlone, again }: Passage): void {
    const { peers, routes } = this.context
    const link = peers?.find(home.nodeId)?.slots
    const isDisowned = this.#disownedBy === home.nodeId
    this.#disownedBy = undefined
    if (isDisowned || !link) {
      const away = routes.holdHome?.(home)
      if (away) this.park(away, policy, again)
      else this.failOnDevice('ERR_GATEWAY_AWAY')
      return
    }
    let pool: StreamPool
    try {
      pool = streams(link)
    } catch (error) {
      if (!(error instanceof CertificateTooLargeError)) throw error
      this.fail('ERR_GATEWAY_HEAD_TOO_LARGE', true, error.message)
      return
    }
    const { client } = this
    client.charge(link.buffers)
    const forward = new PeerForward({
      pool,
      client,
      request: request(),
      scanner: client.responseScanner,
      owner: this,
      isAlone,
    })
    this.become({ name: 'forwarding', forward, policy, to: { home, again } })
    forward.start()
  }
}
