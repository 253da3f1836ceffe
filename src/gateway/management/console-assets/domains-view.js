import { ask } from './api.js'
import { badge, cardHead, facts } from './card.js'
import { copyButton } from './copy-button.js'
import { openForm, textField } from './dialog.js'
import { element, fill } from './element.js'
import { formatDate, formatDistance } from './format.js'
import { actionButton, listView } from './list-view.js'
import { errorNotice, say } from './notice.js'

const CERTIFICATE_CHECK_MS = 2_000

const FOUND_NOTHING = {
  ENOTFOUND: 'DNS has no such record yet.',
  ENODATA: 'DNS has other records of that name, but no CNAME.',
  ETIMEOUT: 'The resolver did not answer in time.',
  ECONNREFUSED: 'The resolver of the gateway is not reachable.',
}

/** Reserved domains: the names below which devices may be reached. */
export function domainsView() {
  return listView({
    title: 'Domains',
    intro: 'The names under which devices are reached.',
    path: 'reserved_domains',
    collection: 'reserved_domains',
    createLabel: 'Reserve a domain',
    create: reserve,
    empty: {
      title: 'No domain is reserved',
      text: 'Reserve a wildcard such as *.site.example.com. Every device of the site then gets a name of its own below it.',
    },
    row: domainCard,
  })
}

async function reserve() {
  const domain = await openForm({
    title: 'Reserve a domain',
    fields: [
      textField({
        name: 'domain',
        label: 'Domain',
        placeholder: '*.site.example.com',
        hint: 'A star in front covers every name below it, at any depth.',
      }),
      textField({
        name: 'description',
        label: 'Description',
        hint: 'For yourself; may stay empty.',
      }),
    ],
    action: 'Reserve',
    run: ({ domain, description }) =>
      ask('POST', 'api/reserved_domains', {
        body: { domain: domain.trim(), ...(description && { description }) },
      }),
  })
  if (domain) say(`${domain.domain} is reserved.`)
  return domain
}

function domainCard(domain, reload) {
  const { domain: name } = domain
  const records = recordsOf(domain).map(recordRow)
  const problem = element('div', {})
  const outcome = element('p', { class: 'outcome', role: 'status' })
  const check = actionButton('Check status', `of ${name}`, async () => {
    check.disabled = true
    fill(problem)
    fill(outcome, 'Asking DNS…')
    try {
      const result = await ask('POST', `api/reserved_domains/${domain.id}/check`)
      for (const [at, record] of result.records.entries()) records[at].show(record)
      fill(outcome, result.ok ? 'Both records are as they should be.' : 'DNS is not ready yet.')
    } catch (error) {
      fill(outcome)
      fill(problem, errorNotice(error))
    } finally {
      check.disabled = false
      check.focus()
    }
  })
  const certificate = certificateState(domain)
  const node = element(
    'article',
    {},
    cardHead(name, {
      badge: certificate.badge,
      actions: [check, actionButton('Delete', name, () => release(domain, reload), true)],
    }),
    facts(
      ['Description', domain.description],
      ['Reserved', formatDate(domain.created_at)],
      ['Certificate', certificate.sentence],
    ),
    element('h3', {}, 'DNS records'),
    element(
      'p',
      { class: 'hint' },
      'Add both at your DNS provider, so that the names lead here and can have a certificate.',
    ),
    element(
      'div',
      { class: 'records' },
      records.map(({ node }) => node),
    ),
    outcome,
    problem,
  )
  certificate.follow(node)
  return node
}

/** What is said about the certificate, kept up to date while it is being made. */
function certificateState({ id, certificate_management_status: status }) {
  const badgePlace = element('span', {})
  const sentence = element('span', {})
  show(status)
  return { badge: badgePlace, sentence, follow }

  function show(now) {
    fill(badgePlace, certificateBadge(now))
    fill(sentence, certificateSentence(now))
  }

  function follow(card) {
    if (isUnderWay(status)) setTimeout(look, CERTIFICATE_CHECK_MS, card)
  }

  async function look(card) {
    if (!card.isConnected) return
    try {
      const now = await ask('GET', `api/reserved_domains/${id}`, { isBackground: true })
      show(now.certificate_management_status)
      if (!isUnderWay(now.certificate_management_status)) return
    } catch {
      // Whatever it is, the next thing that a person does here will say it.
    }
    setTimeout(look, CERTIFICATE_CHECK_MS, card)
  }
}

function isUnderWay({ provisioning_job: job }) {
  return job !== null && job.error_code === null
}

/** In the order in which the check answers. */
function recordsOf({ domain, cname_target, acme_challenge_cname_target }) {
  return [
    { name: domain, value: cname_target },
    {
      name: `_acme-challenge.${domain.replace(/^\*\./, '')}`,
      value: acme_challenge_cname_target,
    },
  ]
}

function recordRow({ name, value }) {
  const state = element('p', { class: 'record-state' })
  const cell = (label, text) =>
    element(
      'div',
      { class: 'record-cell' },
      element('dt', {}, label),
      element(
        'dd',
        {},
        element('code', {}, text),
        copyButton(text, `the ${label.toLowerCase()} ${text}`),
      ),
    )
  const node = element(
    'div',
    { class: 'record' },
    element('dl', {}, [
      element(
        'div',
        { class: 'record-type' },
        element('dt', {}, 'Type'),
        element('dd', {}, 'CNAME'),
      ),
      cell('Name', name),
      cell('Value', value),
    ]),
    state,
  )
  return { node, show: (record) => fill(state, ...describe(record)) }
}

function describe({ ok, found, error }) {
  if (ok) return [badge('Found', 'good')]
  if (found.length > 0) {
    return [badge('Leads elsewhere', 'bad'), ` It points to ${found.join(', ')}.`]
  }
  return [badge('Not found', 'wait'), ` ${FOUND_NOTHING[error] ?? `DNS answered ${error}.`}`]
}

function certificateBadge({ provisioning_job: job }) {
  if (!job) return badge('Certificate ready', 'good')
  return job.error_code
    ? badge('Certificate failed', 'bad')
    : badge('Certificate on its way', 'wait')
}

function certificateSentence({ renews_at, provisioning_job: job }) {
  if (!job) return renews_at ? `Renews ${formatDistance(renews_at)}` : 'Not issued yet'
  const retry = job.retries_at ? ` Tried again ${formatDistance(job.retries_at)}.` : ''
  return job.error_code ? `${job.msg} (${job.error_code})${retry}` : job.msg
}

async function release({ id, domain }, reload) {
  const isDone = await openForm({
    title: `Delete ${domain}?`,
    text: 'Names below it can no longer be opened, and its certificate is thrown away. The records at your DNS provider stay until you remove them.',
    action: 'Delete domain',
    isDangerous: true,
    run: async () => {
      await ask('DELETE', `api/reserved_domains/${id}`)
      return true
    },
  })
  if (!isDone) return
  say(`${domain} is deleted.`)
  await reload()
}
