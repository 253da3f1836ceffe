const MAX_ITEMS = 1_000
/** When a gateway that is cut off counts as silent. Changes may wait for DNS, or for an agent. */
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
 * Asks the gateway. A session that is over is announced on the document as `signed-out`.
 * @param {string} method
 * @param {string} path
 * @param {{ body?: object, isBackground?: boolean }} [options]
 */
export async function ask(method, path, { body, isBackground = false } = {}) {
  const { response, text } = await send(
    method,
    path,
    {
      'svc-version': '2',
      ...(body && { 'content-type': 'application/json' }),
      ...(isBackground && { 'x-background': '1' }),
    },
    body,
  )
  if (response.status === 401) document.dispatchEvent(new Event('signed-out'))
  if (!response.ok) throw refusal(response, text)
  if (response.status === 204) return undefined
  const isJson = response.headers.get('content-type')?.startsWith('application/json')
  return isJson ? JSON.parse(text) : text
}

/**
 * One page of a list, newest first; `next` is the id to go on before, when there is more.
 * @param {string} path
 * @param {string} collection
 * @param {{ before?: string, filter?: string, limit?: number, isBackground?: boolean }} [options]
 */
export async function askPage(path, collection, { before, filter, limit, isBackground } = {}) {
  const query = new URLSearchParams({
    ...(before && { before_id: before }),
    ...(filter && { filter }),
    ...(limit && { limit: String(limit) }),
  })
  const asked = query.size === 0 ? path : `${path}?${query}`
  const answer = await ask('GET', `api/${asked}`, { isBackground })
  const uri = answer.next_page_uri
  // A page of chosen items can be empty, and there are more all the same.
  const next = uri ? new URL(uri).searchParams.get('before_id') : undefined
  return { items: answer[collection], next }
}

/** A list as far as people choose from it: the newest 1,000. */
export async function askAll(path, collection) {
  const all = []
  for (let before; all.length < MAX_ITEMS; ) {
    const { items, next } = await askPage(path, collection, { before })
    all.push(...items)
    if (!next) break
    before = next
  }
  return all
}

/** The answer with its whole text. */
async function send(method, path, headers, body) {
  const silence = new AbortController()
  const timer = setTimeout(() => silence.abort(), method === 'GET' ? READ_MS : CHANGE_MS)
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
    throw new ApiError('The gateway does not answer. Check that it runs and that you can reach it.')
  } finally {
    clearTimeout(timer)
  }
}

function refusal(response, text) {
  try {
    const { msg, error_code } = JSON.parse(text)
    return new ApiError(msg, error_code)
  } catch {
    return new ApiError('The gateway refused this without a reason.', `HTTP ${response.status}`)
  }
}
