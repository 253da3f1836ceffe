import { ask, askAll } from '../api.js'
import { actionButton, facts } from '../card.js'
import { EXPIRES_FIRST, expiryState } from '../certificate-state.js'
import { confirm } from '../confirm.js'
import { longTextField, openForm, selectField, textField } from '../dialog.js'
import { element } from '../element.js'
import { formatDate, formatDistance } from '../format.js'
import { itemDetails } from '../item-details.js'
import { say } from '../notice.js'
import { OwnerNames } from '../owner-names.js'
import { listView } from './list-view.js'

/** Certificates that were uploaded for domains. */
export function certificatesView() {
  const owners = new OwnerNames()
  const ownerOf = ({ owner_id: id }) => owners.nameOf(id)
  return listView({
    title: 'Certificates',
    intro: 'Certificates of your own for domains.',
    path: 'tls_certificates',
    collection: 'tls_certificates',
    createLabel: 'Upload a certificate',
    create: upload,
    empty: {
      title: 'No uploaded certificates',
      text: 'Upload a certificate with its key. Then choose it in Domains with Edit certificate.',
    },
    prepare: (items) => owners.learn(items),
    nameOf: namesOf,
    stateOf: expiryState,
    cellsOf: ({ not_after: end, issuer_common_name: issuer }) => [
      `expires ${formatDistance(end)}`,
      `by ${issuer}`,
    ],
    ownerOf,
    search: {
      placeholder: 'domain, issuer, …',
      fields: ['description', 'issuer_common_name', 'subject_common_name'],
      texts: (it) => [
        ...it.subject_alternative_names.dns_names,
        ...[it.issuer_common_name, it.subject_common_name, it.description],
      ],
    },
    orders: { end: EXPIRES_FIRST },
    details: (certificate, { reload }) => ({
      node: certificateDetails(certificate, ownerOf(certificate), reload),
    }),
  })
}

async function upload() {
  const botUsers = await askAll('bot_users', 'bot_users')
  const created = await openForm({
    title: 'Upload a certificate',
    fields: [
      longTextField({
        name: 'certificate',
        label: 'Certificate and chain (PEM)',
        hint: 'The certificate of the domain first, then the intermediate certificates.',
      }),
      longTextField({
        name: 'key',
        label: 'Private key (PEM)',
        hint: 'Not encrypted. It is stored by the gateway and never shown.',
      }),
      selectField({
        name: 'owner',
        label: 'Owner',
        options: [['', 'This gateway'], ...botUsers.map(({ id, name }) => [id, name])],
      }),
      textField({ name: 'description', label: 'Description', hint: 'Optional note.' }),
    ],
    action: 'Upload',
    run: ({ certificate, key, owner, description }) =>
      ask('POST', 'api/tls_certificates', {
        body: {
          certificate_pem: certificate,
          private_key_pem: key,
          ...(owner && { owner_id: owner }),
          ...(description && { description }),
        },
      }),
  })
  if (created) say(`The certificate for ${namesOf(created)} was uploaded.`)
  return created
}

/** The names of a certificate, shortened. */
export function namesOf({ subject_alternative_names: { dns_names: names } }) {
  const more = names.length - 3
  return names.slice(0, 3).join(', ') + (more > 0 ? ` and ${more} more` : '')
}

function certificateDetails(certificate, owner, reload) {
  const { id, not_after: end } = certificate
  const action = () => remove(certificate, reload)
  return itemDetails(
    [actionButton('Delete', namesOf(certificate), action, true)],
    facts(
      ['Domains', certificate.subject_alternative_names.dns_names.join(', ')],
      ['Description', certificate.description],
      ['Owner', owner],
      ['Issuer', certificate.issuer_common_name],
      ['Expires', `${formatDate(end)} (${formatDistance(end)})`],
      ['Key', certificate.private_key_type],
      ['Uploaded', formatDate(certificate.created_at)],
      ['Id', element('code', {}, id)],
    ),
  )
}

async function remove(certificate, reload) {
  const isDone = await confirm({
    title: `Delete the certificate for ${namesOf(certificate)}?`,
    text: 'Its private key is deleted. Domains must not use it.',
    action: 'Delete certificate',
    method: 'DELETE',
    path: `api/tls_certificates/${certificate.id}`,
    said: 'The certificate was deleted.',
  })
  if (isDone) await reload()
}
