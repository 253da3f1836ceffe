const MAX_MESSAGE = 1_000

/** Why an authority did not issue, for people. */
export function issueErrorText(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  return `The authority did not issue the certificate: ${message.slice(0, MAX_MESSAGE)}`
}
