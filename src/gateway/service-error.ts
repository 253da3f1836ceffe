/**
 * A refusal in the service's vocabulary: agents read it from an RPC answer, people from the
 * management API. `code` is the number in `ERR_NGROK_<code>`; the text must hold no secret.
 */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }

  /** `ERR_NGROK_334`. */
  get errorCode(): string {
    return `ERR_NGROK_${this.code}`
  }
}
