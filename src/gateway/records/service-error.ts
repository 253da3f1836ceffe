/**
 * A refusal in the service's vocabulary: agents read it from an RPC answer, people from the
 * management API. `code` is the number in `ERR_NGROK_<code>`; the text must hold no secret.
 */
export class ServiceError extends Error {
  override readonly name = 'ServiceError'
  readonly code: number

  constructor(code: number, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }

  /** `ERR_NGROK_334`. */
  get errorCode(): string {
    return `ERR_NGROK_${this.code}`
  }
}

/** An item that was there a moment ago. Throws a ResourceNotFoundError when it is gone. */
export function present<Item>(item: Item | undefined): Item {
  if (item) return item
  throw new ResourceNotFoundError()
}

/** The id does not exist, or the caller must not know it. */
export class ResourceNotFoundError extends Error {
  override readonly name = 'ResourceNotFoundError'
}

/** Bytes of the texts that every resource has. */
export const MAX_DESCRIPTION = 255
export const MAX_METADATA = 4_096

/** Throws a ServiceError with `code` when `text` has more than `maxBytes` in UTF-8. */
export function checkLength(text: string, maxBytes: number, code: number, what: string): void {
  const bytes = Buffer.byteLength(text)
  if (bytes <= maxBytes) return
  throw new ServiceError(code, `The ${what} has ${bytes} bytes; at most ${maxBytes} are allowed.`)
}

/** Throws a ServiceError with one of the codes when a text that every resource has is too long. */
export function checkTexts(
  { description, metadata }: { readonly description: string; readonly metadata: string },
  [descriptionCode, metadataCode]: readonly [number, number],
): void {
  checkLength(description, MAX_DESCRIPTION, descriptionCode, 'description')
  checkLength(metadata, MAX_METADATA, metadataCode, 'metadata')
}

/** The refusal of a check; undefined if it passes. */
export function refusalOf(check: () => void): ServiceError | undefined {
  try {
    check()
    return undefined
  } catch (error) {
    if (error instanceof ServiceError) return error
    throw error
  }
}
