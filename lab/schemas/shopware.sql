-- A small form of Shopware 6: IDs are BINARY(16), all foreign keys have ON UPDATE CASCADE, a
-- translation has the key of its parent and of a language, and categories and products are trees
-- with a version in their keys. A channel has domains, and one of these is its default.
CREATE TABLE language (id BINARY(16) PRIMARY KEY, parent_id BINARY(16) NULL, name VARCHAR(50) NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.language.parent_id` FOREIGN KEY (parent_id) REFERENCES language (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE currency (id BINARY(16) PRIMARY KEY, iso_code CHAR(3) NOT NULL, factor DOUBLE NOT NULL, symbol VARCHAR(255) NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL);
CREATE TABLE tax (id BINARY(16) PRIMARY KEY, tax_rate DOUBLE NOT NULL, name VARCHAR(255) NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL);
CREATE TABLE media (id BINARY(16) PRIMARY KEY, mime_type VARCHAR(255) NULL, file_name LONGTEXT NULL, meta_data LONGBLOB NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL);
CREATE TABLE sales_channel (id BINARY(16) PRIMARY KEY, access_key VARCHAR(255) NOT NULL UNIQUE, language_id BINARY(16) NOT NULL, currency_id BINARY(16) NOT NULL, hreflang_default_domain_id BINARY(16) NULL, configuration JSON NULL, active TINYINT(1) NOT NULL DEFAULT 1, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.sales_channel.language_id` FOREIGN KEY (language_id) REFERENCES language (id) ON DELETE RESTRICT ON UPDATE CASCADE,
  CONSTRAINT `fk.sales_channel.currency_id` FOREIGN KEY (currency_id) REFERENCES currency (id) ON DELETE RESTRICT ON UPDATE CASCADE);
CREATE TABLE sales_channel_domain (id BINARY(16) PRIMARY KEY, sales_channel_id BINARY(16) NOT NULL, url VARCHAR(255) NOT NULL UNIQUE, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.sales_channel_domain.sales_channel_id` FOREIGN KEY (sales_channel_id) REFERENCES sales_channel (id) ON DELETE CASCADE ON UPDATE CASCADE);
ALTER TABLE sales_channel ADD CONSTRAINT `fk.sales_channel.hreflang_default_domain_id` FOREIGN KEY (hreflang_default_domain_id) REFERENCES sales_channel_domain (id) ON DELETE CASCADE ON UPDATE CASCADE;
CREATE TABLE category (id BINARY(16) NOT NULL, version_id BINARY(16) NOT NULL, auto_increment BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE, parent_id BINARY(16) NULL, parent_version_id BINARY(16) NULL, media_id BINARY(16) NULL, path LONGTEXT NULL, level INT UNSIGNED NOT NULL DEFAULT 1, active TINYINT(1) NOT NULL DEFAULT 1, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  PRIMARY KEY (id, version_id), KEY (parent_id, parent_version_id),
  CONSTRAINT `fk.category.parent_id` FOREIGN KEY (parent_id, parent_version_id) REFERENCES category (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.category.media_id` FOREIGN KEY (media_id) REFERENCES media (id) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE category_translation (category_id BINARY(16) NOT NULL, category_version_id BINARY(16) NOT NULL, language_id BINARY(16) NOT NULL, name VARCHAR(255) NULL, description LONGTEXT NULL, custom_fields JSON NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  PRIMARY KEY (category_id, category_version_id, language_id),
  CONSTRAINT `fk.category_translation.language_id` FOREIGN KEY (language_id) REFERENCES language (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.category_translation.category_id` FOREIGN KEY (category_id, category_version_id) REFERENCES category (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE product_manufacturer (id BINARY(16) PRIMARY KEY, media_id BINARY(16) NULL, link VARCHAR(255) NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.product_manufacturer.media_id` FOREIGN KEY (media_id) REFERENCES media (id) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE product_manufacturer_translation (product_manufacturer_id BINARY(16) NOT NULL, language_id BINARY(16) NOT NULL, name VARCHAR(255) NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  PRIMARY KEY (product_manufacturer_id, language_id),
  CONSTRAINT `fk.pm_translation.language_id` FOREIGN KEY (language_id) REFERENCES language (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.pm_translation.manufacturer_id` FOREIGN KEY (product_manufacturer_id) REFERENCES product_manufacturer (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE product (id BINARY(16) PRIMARY KEY, auto_increment BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE, parent_id BINARY(16) NULL, product_number VARCHAR(64) NULL UNIQUE, tax_id BINARY(16) NULL, product_manufacturer_id BINARY(16) NULL, price JSON NULL, stock INT NOT NULL, available TINYINT(1) NOT NULL DEFAULT 1, available_stock INT GENERATED ALWAYS AS (stock) STORED, release_date DATETIME(3) NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.product.parent_id` FOREIGN KEY (parent_id) REFERENCES product (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.product.tax_id` FOREIGN KEY (tax_id) REFERENCES tax (id) ON DELETE RESTRICT ON UPDATE CASCADE,
  CONSTRAINT `fk.product.manufacturer_id` FOREIGN KEY (product_manufacturer_id) REFERENCES product_manufacturer (id) ON DELETE SET NULL ON UPDATE CASCADE);
CREATE TABLE product_translation (product_id BINARY(16) NOT NULL, language_id BINARY(16) NOT NULL, name VARCHAR(255) NULL, description LONGTEXT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL, PRIMARY KEY (product_id, language_id),
  CONSTRAINT `fk.product_translation.product_id` FOREIGN KEY (product_id) REFERENCES product (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.product_translation.language_id` FOREIGN KEY (language_id) REFERENCES language (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE product_category (product_id BINARY(16) NOT NULL, category_id BINARY(16) NOT NULL, category_version_id BINARY(16) NOT NULL, PRIMARY KEY (product_id, category_id, category_version_id),
  CONSTRAINT `fk.product_category.product_id` FOREIGN KEY (product_id) REFERENCES product (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.product_category.category_id` FOREIGN KEY (category_id, category_version_id) REFERENCES category (id, version_id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE product_media (id BINARY(16) PRIMARY KEY, position INT NOT NULL DEFAULT 1, product_id BINARY(16) NOT NULL, media_id BINARY(16) NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.product_media.media_id` FOREIGN KEY (media_id) REFERENCES media (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.product_media.product_id` FOREIGN KEY (product_id) REFERENCES product (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE product_price (id BINARY(16) PRIMARY KEY, product_id BINARY(16) NOT NULL, price JSON NOT NULL, quantity_start INT NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.product_price.product_id` FOREIGN KEY (product_id) REFERENCES product (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE product_visibility (id BINARY(16) PRIMARY KEY, product_id BINARY(16) NOT NULL, sales_channel_id BINARY(16) NOT NULL, visibility INT NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.product_visibility.product_id` FOREIGN KEY (product_id) REFERENCES product (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.product_visibility.sales_channel_id` FOREIGN KEY (sales_channel_id) REFERENCES sales_channel (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE seo_url (id BINARY(16) PRIMARY KEY, language_id BINARY(16) NOT NULL, sales_channel_id BINARY(16) NULL, foreign_key BINARY(16) NOT NULL, path_info VARCHAR(750) NOT NULL, seo_path_info VARCHAR(750) NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.seo_url.language_id` FOREIGN KEY (language_id) REFERENCES language (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT `fk.seo_url.sales_channel_id` FOREIGN KEY (sales_channel_id) REFERENCES sales_channel (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE system_config (id BINARY(16) PRIMARY KEY, configuration_key VARCHAR(255) NOT NULL, configuration_value JSON NOT NULL, sales_channel_id BINARY(16) NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL,
  CONSTRAINT `fk.system_config.sales_channel_id` FOREIGN KEY (sales_channel_id) REFERENCES sales_channel (id) ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE cart (token VARCHAR(50) PRIMARY KEY, payload LONGBLOB NULL, rule_ids JSON NOT NULL, created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NULL);
CREATE TABLE messenger_messages (id BIGINT AUTO_INCREMENT PRIMARY KEY, body LONGTEXT NOT NULL, queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT NULL);
