/** When an agent that is cut off counts as silent. Changes may wait for the service. */
const READ_MS = 10_000
const CHANGE_MS = 30_000
/** The doctor dials all that the agent depends on. */
const DOCTOR_MS = 60_000
const SILENT = 'The agent does not answer. Check that it runs and that you can reach the device.'

/** A refusal, or no answer at all. Its message is for people, with the code in it. */
export class ApiError extends Error {
  constructor(sentence, code) {
    super(code ? `${sentence} (${code})` : sentence)
    this.name = 'ApiError'
    this.code = code
  }
}

/**
 * Asks the agent. A session that is over is announced on the document as `signed-out`.
 * @param {string} method
 * @param {string} path
 * @param {{ body?: object, isBackground?: boolean }} [options]
 */
export async function ask(method, path, { body, isBackground = false } = {}) {
  const { response, text } = await send(
    method,
    path,
    {
      ...(body && { 'content-type': 'application/json' }),
      ...(isBackground && { 'x-background': '1' }),
    },
    body,
  )
  if (response.status === 401) document.dispatchEvent(new Event('signed-out'))
  if (!response.ok) throw refusal(response, text)
  return response.status === 204 ? undefined : JSON.parse(text)
}

/** The answer with its whole text. */
async function send(method, path, headers, body) {
  const silence = new AbortController()
  const timer = setTimeout(() => silence.abort(), waitFor(method, path))
  const { signal } = silence
  try {
    const response = await fetch(path, {
      method,
      headers,
      body: body && JSON.stringify(body),
      signal,
    })
    return { response, text: await response.text() }
  } catch {
    throw new ApiError(SILENT)
  } finally {
    clearTimeout(timer)
  }
}

function waitFor(method, path) {
  if (path === 'api/doctor') return DOCTOR_MS
  return method === 'GET' ? READ_MS : CHANGE_MS
}

function refusal(response, text) {
  try {
    const { detail, code, errors = [] } = JSON.parse(text)
    const lines = errors.map((error) => `\n${error.pointer.slice(1)} ${error.detail}`)
    return new ApiError(`${detail}${lines.join('')}`, code)
  } catch {
    return new ApiError('The agent refused this without a reason.', `HTTP ${response.status}`)
  }
}
