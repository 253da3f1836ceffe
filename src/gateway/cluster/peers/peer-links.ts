import type { ListenAddress } from '../../../base/listen-address.ts'
import { PeerLink, type PeerLinkOptions } from './peer-link.ts'

export interface PeerLinksOptions extends Omit<PeerLinkOptions, 'nodeId' | 'address' | 'onChange'> {
  /** A node can be reached from now on, or cannot. */
  onChange(nodeId: string): void
}

/** Another node of the cluster, as this one knows of it. */
export interface PeerNode {
  readonly id: string
  readonly address: ListenAddress
}

/** The links from here to the other nodes: one for each. */
export class PeerLinks {
  readonly #options: PeerLinksOptions
  readonly #links = new Map<string, PeerLink>()

  constructor(options: PeerLinksOptions) {
    this.#options = options
  }

  find(nodeId: string): PeerLink | undefined {
    return this.#links.get(nodeId)
  }

  all(): Iterable<PeerLink> {
    return this.#links.values()
  }

  /** Links to all these nodes, and no others; this node itself is left out. */
  follow(nodes: Iterable<PeerNode>): void {
    const wanted = new Map(Array.from(nodes, (node) => [node.id, node]))
    wanted.delete(this.#options.identity().nodeId)
    for (const [id, link] of this.#links) {
      const node = wanted.get(id)
      const isAsBefore =
        node?.address.host === link.address.host && node.address.port === link.address.port
      if (isAsBefore) wanted.delete(id)
      else {
        this.#links.delete(id)
        void link.close()
      }
    }
    for (const { id, address } of wanted.values()) this.#open(id, address)
  }

  async stop(): Promise<void> {
    const links = [...this.#links.values()]
    this.#links.clear()
    await Promise.all(links.map((link) => link.close()))
  }

  #open(nodeId: string, address: ListenAddress): void {
    const { onChange } = this.#options
    const link = new PeerLink({
      ...this.#options,
      nodeId,
      address,
      onChange: () => onChange(nodeId),
    })
    this.#links.set(nodeId, link)
    link.open()
  }
}
