import { ask, askAll } from '../api.js'
import { actionButton, facts } from '../card.js'
import { confirm } from '../confirm.js'
import { longTextField, openForm, selectField } from '../dialog.js'
import { element } from '../element.js'
import { formatBytes, formatDate } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { listView } from './list-view.js'

const KINDS = [
  ['offline', 'Device offline'],
  ['unknown', 'Unknown address'],
  ['busy', 'Too busy'],
  ['too_many_requests', 'Too many requests'],
  ['upstream_failed', 'Service not available'],
  ['default', 'All other errors'],
]
const HINT =
  'At most 64 KiB. Placeholders: {{status}}, {{title}}, {{message}}, {{host}}, {{request_id}}, {{code}}, {{retry_after}}.'
const EXAMPLE = `<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width">
<title>{{title}}</title>
<style>
  :root { color-scheme: light dark }
  body { font: 1rem/1.5 sans-serif; margin: 15vh auto; max-width: 30rem; padding: 0 1rem }
</style>
<h1>{{title}}</h1>
<p>{{message}}</p>
<p>Request ID: {{request_id}}</p>
</html>
`
const FRAME = 'error-page-preview'
const WHOLE_GATEWAY = 'The whole gateway'

/** Error pages: the looks of an error for visitors. */
export function errorPagesView() {
  const domains = new Map()
  const learnDomains = async () => {
    for (const { id, domain } of await askAll('reserved_domains', 'reserved_domains')) {
      domains.set(id, domain)
    }
  }
  const placeOf = ({ reserved_domain: domain }) =>
    domain ? (domains.get(domain.id) ?? domain.id) : WHOLE_GATEWAY
  return listView({
    title: 'Error pages',
    intro: 'Pages that visitors with a browser see when an address is offline, busy or unknown.',
    path: 'error_pages',
    collection: 'error_pages',
    createLabel: 'Create an error page',
    create: async () => {
      await learnDomains()
      return create(domains)
    },
    empty: {
      title: 'No own error pages',
      text: 'Visitors see the page of the gateway. Create a page to show your name and a contact.',
    },
    prepare: learnDomains,
    nameOf: ({ kind }) => labelOf(kind),
    stateOf: ({ in_use: isInUse }) =>
      isInUse ? { text: 'In use', tone: 'good' } : { text: 'Not in use', tone: 'plain' },
    cellsOf: (page) => [placeOf(page), formatBytes(page.size)],
    search: {
      placeholder: 'error, domain, …',
      fields: ['kind', 'description'],
      texts: (page) => [page.kind, placeOf(page), page.description],
    },
    details: (page, { reload }) => ({ node: pageDetails(page, placeOf(page), reload) }),
  })
}

function create(domains) {
  const places = Array.from(domains, ([id, domain]) => [id, domain])
  return openForm({
    title: 'Create an error page',
    fields: [
      selectField({ name: 'kind', label: 'Error', options: KINDS }),
      selectField({
        name: 'domain',
        label: 'Domain',
        options: [...places, ['', WHOLE_GATEWAY]],
        hint: 'A page of a domain comes before the page of the gateway.',
      }),
      longTextField({ name: 'html', label: 'HTML', value: EXAMPLE, hint: HINT }),
      preview(),
    ],
    action: 'Create',
    run: ({ kind, domain, html }) =>
      ask('POST', 'api/error_pages', {
        body: { kind, html, ...(domain && { reserved_domain_id: domain }) },
      }),
  })
}

function pageDetails(page, place, reload) {
  const { id, kind, description, in_use: isInUse, created_at: createdAt } = page
  const name = `${labelOf(kind)}, ${place}`
  return itemDetails(
    [
      actionButton('Change', name, () => change(page, name, reload)),
      actionButton('Delete', name, () => remove(page, name, reload), true),
    ],
    facts(
      ['Shown at', place],
      ['Not in use', isInUse ? undefined : 'the domain belongs to another account'],
      ['Description', description],
      ['Size', formatBytes(page.size)],
      ['Created', formatDate(createdAt)],
      ['Id', element('code', {}, id)],
    ),
  )
}

const labelOf = (kind) => KINDS.find(([key]) => key === kind)?.[1] ?? kind

async function change({ id, kind }, name, reload) {
  const { html } = await ask('GET', `api/error_pages/${id}`)
  const changed = await openForm({
    title: `Change the page: ${name}`,
    fields: [
      longTextField({ name: 'html', label: 'HTML', value: html, hint: HINT }),
      preview(kind),
    ],
    action: 'Save',
    run: (values) => ask('PATCH', `api/error_pages/${id}`, { body: { html: values.html } }),
  })
  if (!changed) return
  say('The page was saved.')
  await reload()
}

async function remove({ id }, name, reload) {
  const isDone = await confirm({
    title: `Delete the page: ${name}?`,
    text: 'Visitors see the next page: of a wildcard above, of the gateway, or the default page.',
    action: 'Delete page',
    method: 'DELETE',
    path: `api/error_pages/${id}`,
    said: 'The page was deleted.',
  })
  if (isDone) await reload()
}

/**
 * A frame that shows the page of the form. The frame is sandboxed: its page runs no script, and belongs to
 * no origin. `fixedKind`: the kind, where the form has none.
 */
function preview(fixedKind) {
  const frame = element('iframe', {
    name: FRAME,
    title: 'Preview',
    sandbox: true,
    class: 'preview',
  })
  frame.hidden = true
  const node = element(
    'div',
    { class: 'field' },
    element('button', { type: 'button', class: 'button', onclick: show }, 'Preview'),
    frame,
    element(
      'p',
      { class: 'hint' },
      'The preview runs no scripts and loads nothing from other sites.',
    ),
  )
  return node

  /** A form of its own, because the form of the dialog is sent by a script. */
  function show() {
    const { elements } = node.closest('form')
    const kind = fixedKind ?? elements.namedItem('kind').value
    const values = { kind, html: elements.namedItem('html').value }
    const form = element(
      'form',
      { method: 'post', action: 'error_page_preview', target: FRAME, hidden: true },
      Object.entries(values).map(([name, value]) => {
        return element('textarea', { name }, value)
      }),
    )
    frame.hidden = false
    document.body.append(form)
    frame.addEventListener('load', () => form.remove(), { once: true })
    form.submit()
  }
}
