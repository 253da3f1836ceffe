import { ask, askAll } from '../api.js'
import { actionButton, facts } from '../card.js'
import { certificateState, isCertificatePending } from '../certificate-state.js'
import { confirm } from '../confirm.js'
import { openForm, selectField, textField } from '../dialog.js'
import { checkSentence, recordRow, recordsOf } from '../dns-record.js'
import { element, fill, setText } from '../element.js'
import { formatDate } from '../format.js'
import { itemDetails } from '../item-details.js'
import { errorNotice, say } from '../notice.js'
import { OwnerNames } from '../owner-names.js'
import { namesOf } from './certificates-view.js'
import { listView } from './list-view.js'

/** Reserved domains: the names below which devices may be reached. */
export function domainsView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Domains',
    intro: 'Host names of devices.',
    path: 'reserved_domains',
    collection: 'reserved_domains',
    createLabel: 'Reserve a domain',
    create: reserve,
    empty: {
      title: 'No reserved domains',
      text: 'Reserve a wildcard domain such as *.site.example.com. Every device of the site then gets a name below it.',
    },
    prepare: (items) => owners.learn(items),
    nameOf: ({ domain }) => domain,
    stateOf,
    cellsOf: (domain) => [ownerOf(domain) ?? 'this gateway', domain.description],
    ownerOf,
    isPending: isCertificatePending,
    search: {
      placeholder: 'domain, owner, …',
      fields: ['domain', 'description'],
      texts: ({ description }) => [description],
    },
    details: (domain, after) => domainDetails(domain, ownerOf(domain), after),
  })
}

/** Ways to a certificate, by the value of the form. */
const POLICIES = {
  gateway: { authority: 'gateway' },
  'on-demand': { authority: 'letsencrypt', challenge: 'on-demand' },
  'dns-01': { authority: 'letsencrypt', challenge: 'dns-01' },
}
const WAYS = [
  ['gateway', 'CA of this gateway'],
  ['on-demand', 'ACME authority, on demand for single names'],
  ['dns-01', 'ACME authority, by DNS (wildcards)'],
]

const certificateField = (options) =>
  selectField({
    name: 'certificate',
    label: 'Certificate',
    hint: 'On demand needs a DNS record to this gateway. By DNS also needs a record for challenges.',
    options,
  })

function wayOf({ certificate_management_policy: policy }) {
  return policy.authority === 'gateway' ? 'gateway' : policy.challenge
}

async function reserve() {
  const botUsers = await askAll('bot_users', 'bot_users')
  const domain = await openForm({
    title: 'Reserve a domain',
    fields: [
      textField({
        name: 'domain',
        label: 'Domain',
        placeholder: '*.site.example.com',
        hint: 'A leading * covers all names below the domain, at any depth.',
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        hint: 'Authtokens without ACL rules can open the domains of their owner.',
        options: [['', 'This gateway'], ...botUsers.map(({ id, name }) => [id, name])],
      }),
      certificateField([['', 'Default of this gateway'], ...WAYS]),
      textField({
        name: 'description',
        label: 'Description',
        hint: 'Optional note.',
      }),
    ],
    action: 'Reserve',
    run: ({ domain, owner, certificate, description }) =>
      ask('POST', 'api/reserved_domains', {
        body: {
          domain: domain.trim(),
          ...(owner && { owner_id: owner }),
          ...(certificate && { certificate_management_policy: POLICIES[certificate] }),
          ...(description && { description }),
        },
      }),
  })
  if (domain) say(`${domain.domain} was reserved.`)
  return domain
}

/** By number of records. */
const HINTS = [
  'This gateway has no public name yet. Set GATEWAY_PUBLIC_NAMES to get a DNS record.',
  'Add this record at your DNS provider. It leads visitors to the gateway.',
  'Add both records at your DNS provider. The gateway needs them for visitors and certificates.',
]

function stateOf(domain) {
  const state = certificateState(domain)
  if (state.tone === 'bad') return state
  if (domain.overlap) return { text: 'Overlap', tone: 'bad' }
  return domain.warning ? { text: 'Warning', tone: 'wait' } : state
}

function domainDetails(domain, owner, { reload, replace }) {
  const { id, domain: name } = domain
  const records = recordsOf(domain).map(recordRow)
  const problem = element('div', {})
  const outcome = element('p', { class: 'outcome', role: 'status' })
  const certificate = element('span', {})
  const kept = withoutStatus(domain)
  const check = actionButton('Check status', `of ${name}`, async () => {
    check.disabled = true
    fill(problem)
    fill(outcome, 'Checking DNS…')
    try {
      const result = await ask('POST', `api/reserved_domains/${id}/check`)
      for (const [at, record] of result.records.entries()) records[at]?.show(record)
      fill(outcome, checkSentence(result))
      // The check may have made the gateway try again.
      replace(await ask('GET', `api/reserved_domains/${id}`))
    } catch (error) {
      for (const record of records) record.forget()
      fill(outcome)
      fill(problem, errorNotice(error))
    } finally {
      check.disabled = false
      if (document.activeElement === document.body) check.focus()
    }
  })
  const node = itemDetails(
    [
      check,
      actionButton('Edit certificate', `of ${name}`, () => changeCertificate(domain, reload)),
      actionButton('Delete', name, () => release(domain, reload), true),
    ],
    facts(
      ['Domain', name],
      ['Description', domain.description],
      ['Owner', owner],
      ['Reserved', formatDate(domain.created_at)],
      ['Certificate', certificate],
      ['Overlap', domain.overlap?.msg],
      ['Warning', domain.warning?.msg],
    ),
    element('p', { class: 'hint records-hint' }, HINTS[records.length]),
    element(
      'div',
      { class: 'records' },
      records.map(({ node }) => node),
    ),
    outcome,
    problem,
  )
  update(domain)
  return { node, update }

  /** Only the state of the certificate changes without a user. */
  function update(now) {
    setText(certificate, certificateState(now).sentence)
    return withoutStatus(now) === kept
  }
}

const withoutStatus = (domain) => JSON.stringify({ ...domain, certificate_management_status: 0 })

async function changeCertificate(reserved, reload) {
  const { id, domain } = reserved
  const way = reserved.certificate?.id ?? wayOf(reserved)
  const uploaded = await askAll('tls_certificates', 'tls_certificates')
  const own = uploaded.map((it) => [it.id, `Uploaded: ${namesOf(it)}, ${formatDate(it.not_after)}`])
  // The current way comes first, so it is selected.
  const options = [...WAYS, ...own].sort(([a], [b]) => Number(b === way) - Number(a === way))
  const changed = await openForm({
    title: `Certificate of ${domain}`,
    fields: [certificateField(options)],
    action: 'Save',
    run: ({ certificate }) =>
      ask('PATCH', `api/reserved_domains/${id}`, {
        body: POLICIES[certificate]
          ? { certificate_management_policy: POLICIES[certificate] }
          : { certificate_id: certificate },
      }),
  })
  if (!changed) return
  say(`The certificate of ${domain} was changed.`)
  await reload()
}

async function release({ id, domain }, reload) {
  const isDone = await confirm({
    title: `Delete ${domain}?`,
    text: 'Names below it can no longer be opened, and its certificate is deleted. Remove the records at your DNS provider yourself.',
    action: 'Delete domain',
    method: 'DELETE',
    path: `api/reserved_domains/${id}`,
    said: `${domain} was deleted.`,
  })
  if (isDone) await reload()
}
