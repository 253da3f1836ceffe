/**
 * `too-large` is about a limit of ours, `unmet-expectation` and `not-implemented` about what is not
 * offered here, `malformed` about a rule of RFC 9110 or RFC 9112.
 */
export type SyntaxFault = 'malformed' | 'too-large' | 'unmet-expectation' | 'not-implemented'

/** A message that is not passed on. The text is a clause without a full stop: `two Host fields`. */
export class HttpSyntaxError extends Error {
  override readonly name = 'HttpSyntaxError'
  readonly fault: SyntaxFault

  constructor(text: string, fault: SyntaxFault = 'malformed') {
    super(text)
    this.fault = fault
  }
}
