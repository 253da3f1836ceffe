/** How a body ends (RFC 9112 6.3): after so many bytes, or in one of the two ways below. */
export type BodyFraming = number

/** By its last chunk and the trailers. */
export const CHUNKED: BodyFraming = -1
/** By the end of the connection; only a response may. */
export const UNTIL_CLOSE: BodyFraming = -2
