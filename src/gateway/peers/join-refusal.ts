/** Why a node may not join: the code is stable, the sentence says what to do. */
export const JOIN_REFUSALS = {
  'join-malformed': 'The request to join cannot be read: are both nodes of the same version?',
  'join-token-unknown':
    'The cluster does not know this join token: make a new one on one of its nodes.',
  'join-token-used': 'A node has joined with this token before: make a new one for each node.',
  'join-token-expired': 'The join token has expired: make a new one.',
  'join-ports-differ':
    'The public ports of this node are not those of the cluster: set GATEWAY_HTTP_LISTEN and GATEWAY_HTTPS_LISTEN to the same ports on all nodes.',
  'join-too-often': 'Too many wrong join tokens came from this address: wait a minute.',
  'join-cluster-unknown':
    'What answers at this address is not the cluster that the join token is for: nothing was sent to it.',
  'join-unreachable': 'No node of the cluster answers at this address.',
  'join-failed': 'The node that was asked has failed; its log says why. Try again.',
} as const

export type JoinRefusalCode = keyof typeof JOIN_REFUSALS

export class JoinRefusedError extends Error {
  override readonly name = 'JoinRefusedError'
  readonly code: JoinRefusalCode

  constructor(code: JoinRefusalCode, cause?: unknown) {
    super(JOIN_REFUSALS[code], cause === undefined ? undefined : { cause })
    this.code = code
  }
}

export function isJoinRefusalCode(text: string): text is JoinRefusalCode {
  return Object.hasOwn(JOIN_REFUSALS, text)
}
