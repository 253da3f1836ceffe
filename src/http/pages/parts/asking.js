/** When a server that is cut off counts as silent. Changes may wait for others. */
const READ_MS = 10_000
const CHANGE_MS = 30_000

/** A refusal, or no answer at all. Its message is a sentence for people, with the code in it. */
export class ApiError extends Error {
  constructor(sentence, code) {
    super(code ? `${sentence} (${code})` : sentence)
    this.name = 'ApiError'
    this.code = code
  }
}

/**
 * What a page asks its server with. A session that is over is announced on the document as `signed-out`.
 * `who` answers; `refusal` makes a sentence and a code of the JSON of one; `patience` says in
 * milliseconds how long a path may take that takes longer than others.
 * @param {{ who: string, hint: string, headers?: Record<string, string>, patience?: Record<string, number>,
 *   refusal: (answer: any) => { sentence: string, code: string } }} options
 */
export function createAsk({ who, hint, headers: always = {}, patience = {}, refusal }) {
  /**
   * @param {string} method
   * @param {string} path
   * @param {{ body?: object, isBackground?: boolean }} [options]
   */
  return async function ask(method, path, { body, isBackground = false } = {}) {
    const headers = {
      ...always,
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
    return isJson ? JSON.parse(text) : text
  }

  /** The answer with its whole text. */
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
      const { sentence, code } = refusal(JSON.parse(text))
      return new ApiError(sentence, code)
    } catch {
      return new ApiError(`${who} refused the request without a reason.`, `HTTP ${response.status}`)
    }
  }
}
