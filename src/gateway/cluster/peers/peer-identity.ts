import { constants, createPrivateKey, X509Certificate } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TLSSocket } from 'node:tls'
import { StartError } from '../../../base/app-error.ts'
import { writeFileDurably } from '../../../base/file.ts'
import { nodeOf } from './node-name.ts'

/** ALPN name of the protocol between nodes (RFC 7301). */
export const PEER_PROTOCOL = 'device-agent-peer'

/** File of an identity in the data directory. */
export const IDENTITY_FILE = 'node.json'

/** Certificate and key of a node, and the authority of the others. PEM. */
export interface PeerIdentity {
  readonly nodeId: string
  readonly certPem: string
  readonly keyPem: string
  /** The cluster's authority, the only trusted one. */
  readonly authorityPem: string
}

/** Stores an identity in `node.json` atomically, also in case of a power cut. */
export function keepIdentity(folder: string, identity: PeerIdentity): void {
  writeFileDurably(join(folder, IDENTITY_FILE), `${JSON.stringify(identity, undefined, 2)}\n`)
}

/** The identity in a folder; undefined when the node is in no cluster. Throws a StartError. */
export function readIdentity(folder: string): PeerIdentity | undefined {
  const path = join(folder, IDENTITY_FILE)
  if (!existsSync(path)) return undefined
  try {
    const { nodeId, certPem, keyPem, authorityPem } = JSON.parse(readFileSync(path, 'utf8'))
    const certificate = new X509Certificate(certPem)
    const isIssued = certificate.verify(new X509Certificate(authorityPem).publicKey)
    const isOurs = certificate.checkPrivateKey(createPrivateKey(keyPem))
    if (!isIssued || !isOurs || nodeOf(certificate) !== nodeId) throw new Error('invalid content')
    return { nodeId, certPem, keyPem, authorityPem }
  } catch (error) {
    throw new StartError(
      `${path} is damaged. Restore it from a backup, or delete it and join the cluster again.`,
      { cause: error },
    )
  }
}

/** TLS options of both sides of a link: TLS 1.3, and only certificates of the cluster. */
export function tlsOptions({ certPem, keyPem, authorityPem }: PeerIdentity) {
  return {
    cert: certPem,
    key: keyPem,
    ca: authorityPem,
    minVersion: 'TLSv1.3',
    // Without tickets, each connection shows its certificate again.
    secureOptions: constants.SSL_OP_NO_TICKET,
  } as const
}

/** The node at the other end; undefined when it has shown no certificate of the cluster. */
export function peerOf(socket: TLSSocket): string | undefined {
  if (!socket.authorized) return undefined
  const certificate = socket.getPeerX509Certificate()
  return certificate && nodeOf(certificate)
}
