import { createHash } from 'node:crypto'
import { type ErrorKind, type ErrorValues, escapeHtml, KIND_TEXTS } from './error-kind.ts'

const STYLE = `
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --text: #1d2330; --soft: #5b6475; --line: #dfe3ea; --mark: #b4460f; --mark-back: #fdeee4; --link: #1f5fbf; --on-link: #fff }
@media (prefers-color-scheme: dark) {
  :root { --page: #12151b; --card: #1b2029; --text: #e8ebf1; --soft: #a0a9b9; --line: #313947; --mark: #ffb487; --mark-back: #3a2518; --link: #8ab8ff; --on-link: #0f1a2b }
}
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; min-height: 100dvh; display: grid; place-items: center; padding: 1.25rem; background: var(--page); color: var(--text); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere }
main { width: 100%; max-width: 33rem; padding: clamp(1.5rem, 6vw, 2.5rem); background: var(--card); border: 1px solid var(--line); border-radius: 1rem; box-shadow: 0 1px 2px rgb(0 0 0 / .05), 0 12px 32px rgb(0 0 0 / .07) }
.status { display: inline-block; margin: 0 0 1rem; padding: .15rem .7rem; border-radius: 1rem; background: var(--mark-back); color: var(--mark); font-weight: 600; font-size: .9rem }
h1 { margin: 0 0 .5rem; font-size: clamp(1.5rem, 6vw, 1.9rem); line-height: 1.2; letter-spacing: -.01em }
p { margin: 0 0 1rem }
ul { margin: 0 0 1.5rem; padding: 0 0 0 1.2rem; color: var(--soft) }
li { margin: .3rem 0 }
a { display: inline-block; padding: .55rem 1.15rem; border-radius: .6rem; background: var(--link); color: var(--on-link); font-weight: 600; text-decoration: none }
a:hover { filter: brightness(1.08) }
a:focus-visible { outline: 3px solid var(--link); outline-offset: 3px }
dl { display: grid; grid-template-columns: auto 1fr; gap: .25rem 1rem; margin: 1.75rem 0 0; padding: 1rem 0 0; border-top: 1px solid var(--line); color: var(--soft); font-size: .85rem }
dt, dd { margin: 0 }
dd { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; user-select: all }
`

/** Nothing but the style of the page: no script, no image, no other site. */
export const DEFAULT_PAGE_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'`,
  "base-uri 'none'",
  "form-action 'none'",
].join('; ')

/** The gateway's page for an error. It says nothing about the device, the upstream or versions. */
export function defaultPage(kind: ErrorKind, values: ErrorValues): string {
  const { status, host, requestId, code } = values
  const title = escapeHtml(values.title)
  const hints = hintsFor(kind, values).map((hint) => `<li>${escapeHtml(hint)}</li>\n`)
  const facts = [
    ['Address', host],
    ['Error', code],
    ['Request ID', requestId],
  ].filter((fact): fact is [string, string] => fact[1] !== undefined && fact[1] !== '')
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${status} ${title}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<p class="status">Error ${status}</p>
<h1>${title}</h1>
<p>${escapeHtml(values.message)}</p>
<ul>
${hints.join('')}</ul>
<a href="">Try again</a>
<dl>
${facts.map(([name, value]) => `<dt>${name}</dt><dd>${escapeHtml(value)}</dd>\n`).join('')}</dl>
</main>
</body>
</html>
`
}

function hintsFor(kind: ErrorKind, { retryAfterS }: ErrorValues): string[] {
  const { hints } = KIND_TEXTS[kind]
  if (retryAfterS === undefined) return [...hints]
  return [`Try again in ${duration(retryAfterS)}.`, ...hints]
}

function duration(seconds: number): string {
  if (seconds === 1) return '1 second'
  if (seconds < 120) return `${seconds} seconds`
  const minutes = Math.ceil(seconds / 60)
  return minutes < 120 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`
}
