import type { X509Certificate } from 'node:crypto'

const SCHEME = 'device-agent:node:'
const NODE_ID = /^[0-9A-Za-z_-]{1,64}$/

/** Alternative name (a URI) of a node's certificate. */
export function nodeName(nodeId: string): string {
  if (!NODE_ID.test(nodeId)) throw new Error('a node id contains only letters, digits, - and _')
  return `${SCHEME}${nodeId}`
}

/** The node that a certificate is for; undefined unless it names exactly one, and nothing else. */
export function nodeOf({
  subjectAltName,
}: Pick<X509Certificate, 'subjectAltName'>): string | undefined {
  const prefix = `URI:${SCHEME}`
  if (!subjectAltName?.startsWith(prefix)) return undefined
  const nodeId = subjectAltName.slice(prefix.length)
  return NODE_ID.test(nodeId) ? nodeId : undefined
}
