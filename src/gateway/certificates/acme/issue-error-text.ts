const MAX_MESSAGE = 1_000

/** Why an authority did not issue, for people: one line, whatever bytes it answered with. */
export function issueErrorText(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  // PostgreSQL takes no NUL, and no terminal has to obey an authority.
  const line = message.replace(/\p{Cc}+/gu, ' ')
  return `The authority did not issue the certificate: ${line.slice(0, MAX_MESSAGE)}`
}
