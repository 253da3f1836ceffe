/** OpenSSL's and Node's words for a certificate that was not accepted. */
const CERTIFICATE =
  /^(CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|ERR_TLS_CERT|HOSTNAME_MISMATCH|INVALID_CA)/
const NO_TLS = /^(EPROTO|ERR_SSL_)/
const NO_HTTP = /^(HPE_|UND_ERR_SOCKET|ECONNRESET)/

/** Why `fetch` could not talk to `origin`, and what to do, in one sentence. */
export function connectionSentence(error: unknown, origin: string, timeoutMs: number): string {
  const code = codeOf(error)
  if (code === 'TimeoutError' || code === 'UND_ERR_CONNECT_TIMEOUT' || code === 'ETIMEDOUT') {
    return `${origin} did not answer within ${timeoutMs / 1_000} s. Check --api-url and the network.`
  }
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return `${origin} cannot be resolved (${code}). Check --api-url and the DNS of this machine.`
  }
  if (code === 'ECONNREFUSED') {
    return `${origin} refuses connections. Start the gateway, or check --api-url.`
  }
  if (CERTIFICATE.test(code)) {
    return (
      `The certificate of ${origin} is not trusted (${code}). Check --api-url and the clock, ` +
      'or set NODE_EXTRA_CA_CERTS to its CA file.'
    )
  }
  if (NO_TLS.test(code)) return `${origin} does not use TLS (${code}). Use http:// in --api-url.`
  if (NO_HTTP.test(code)) {
    return `${origin} closed the connection without an HTTP response (${code}). Check --api-url: http or https.`
  }
  const { message } = rootOf(error)
  return `${origin} is unreachable (${code || message}). Check --api-url and the network.`
}

function codeOf(error: unknown): string {
  if (error instanceof Error && error.name === 'TimeoutError') return error.name
  const { code } = rootOf(error) as NodeJS.ErrnoException
  return code ?? ''
}

/** `fetch` wraps what went wrong in a TypeError that says nothing. */
function rootOf(error: unknown): Error {
  if (!(error instanceof Error)) return new Error(String(error))
  return error.cause instanceof Error ? rootOf(error.cause) : error
}
