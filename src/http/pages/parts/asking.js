/** Time limits for answers, in milliseconds. Changes may have to wait for other changes. */
const READ_MS = 10_000
const CHANGE_MS = 30_000

/**
 * An error answer, or no answer. The message is a sentence for people and contains the code. `errors` are the
 * invalid fields of a form: JSON pointer and problem. `code` is undefined without an answer.
 */
export class ApiError extends Error {
  constructor(sentence, code, errors = []) {
    super(code ? `${sentence} (${code})` : sentence)
    this.name = 'ApiError'
    this.code = code
    this.errors = errors
  }
}

/**
 * Returns the function that a page uses for requests to its server. If the session has ended, it
 * dispatches `signed-out` on the document.
 *
 * - `who` is the name of the server in messages.
 * - `refusal` returns the sentence and the code of an error answer.
 * - `patience` has time limits in milliseconds for slow paths.
 * @param {{ who: string, hint: string, headers?: Record<string, string>, patience?: Record<string, number>,
 *   refusal: (answer: any) => { sentence: string, code: string, errors?: any[] } }} options
 */
export function createAsk({ who, hint, headers: always = {}, patience = {}, refusal }) {
  /**
   * Resolves with the answer. `ifMatch` is the version to change. With `hasEtag`, resolves with the answer as
   * `value` and its version as `etag`.
   * @param {string} method
   * @param {string} path
   * @param {{ body?: object, isBackground?: boolean, ifMatch?: string, hasEtag?: boolean }} [options]
   */
  return async function ask(method, path, options = {}) {
    const { body, isBackground = false, ifMatch, hasEtag = false } = options
    const headers = {
      ...always,
      ...(ifMatch && { 'if-match': ifMatch }),
      ...(body && { 'content-type': 'application/json' }),
      ...(isBackground && { 'x-background': '1' }),
    }
    const waitMs = patience[path] ?? (method === 'GET' ? READ_MS : CHANGE_MS)
    const { response, text } = await send(
      path,
      { method, headers, body: body && JSON.stringify(body) },
      waitMs,
    )
    if (response.status === 401) document.dispatchEvent(new Event('signed-out'))
    if (!response.ok) throw refused(response, text)
    if (response.status === 204) return undefined
    const isJson = response.headers.get('content-type')?.startsWith('application/json')
    const value = isJson ? JSON.parse(text) : text
    return hasEtag ? { value, etag: response.headers.get('etag') } : value
  }

  /** Resolves with the answer and its complete text. */
  async function send(path, request, waitMs) {
    const silence = new AbortController()
    const timer = setTimeout(() => silence.abort(), waitMs)
    try {
      const response = await fetch(path, { ...request, signal: silence.signal })
      return { response, text: await response.text() }
    } catch {
      throw new ApiError(`${who} does not answer. ${hint}`)
    } finally {
      clearTimeout(timer)
    }
  }

  function refused(response, text) {
    try {
      const { sentence, code, errors } = refusal(JSON.parse(text))
      return new ApiError(sentence, code, errors)
    } catch {
      return new ApiError(`${who} refused the request without a reason.`, `HTTP ${response.status}`)
    }
  }
}
